"""Runs inside a transaction: read, inserted, ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from checkpoints.records import Cause, NewRun, Note, Run
from checkpoints.run_errors import UnknownRunError
from checkpoints.status import CauseKind, RunStatus
from checkpoints.tx import Row, Tx, instant, one, optional_instant, optional_stamp, stamp

COLUMNS = (
    "t.run_id, t.thread_id, t.owner_id, t.subject_id, t.parent_run_id, t.resumes_run_id, t.root_run_id, t.depth, t.status,"
    " t.fence, t.created_at, t.finished_at, t.deadline, t.cause, t.cause_reason, t.cause_at, t.receipt, t.payload"
)


def run_of(row: Row) -> Run:
    """A run from its COLUMNS."""
    cause = None if row[13] is None else Cause(kind=CauseKind(row[13]), reason=row[14], at=instant(row[15]))
    return Run(
        run_id=row[0],
        thread_id=row[1],
        owner_id=row[2],
        subject_id=row[3],
        parent_run_id=row[4],
        resumes_run_id=row[5],
        root_run_id=row[6],
        depth=row[7],
        status=RunStatus(row[8]),
        fence=row[9],
        created_at=instant(row[10]),
        finished_at=optional_instant(row[11]),
        deadline=optional_instant(row[12]),
        cause=cause,
        receipt=json.loads(row[16]),
        payload=None if row[17] is None else json.loads(row[17]),
    )


def get_run(tx: Tx, run_id: str, *, lock: str = "") -> Run:
    """One run.

    Raises:
        UnknownRunError: There is none.
    """
    row = one(tx.execute(f"SELECT {COLUMNS} FROM runs t WHERE t.run_id = ?{lock}", (run_id,)))
    if row is None:
        raise UnknownRunError(run_id)
    return run_of(row)


def list_runs(tx: Tx, filters: Sequence[tuple[str, Any]], limit: int) -> tuple[Run, ...]:
    """Runs newest first. `filters` are (column, value) pairs; columns are this package's own words."""
    where = " AND ".join(f"t.{column} = ?" for column, _ in filters) or "1 = 1"
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM runs t WHERE {where} ORDER BY t.run_no DESC LIMIT ?",
        (*(value for _, value in filters), limit),
    )
    return tuple(run_of(row) for row in rows)


def insert_run(tx: Tx, new: NewRun, fence: int, now: datetime) -> None:
    """A live run under its fence."""
    tx.execute(
        "INSERT INTO runs (run_id, thread_id, owner_id, subject_id, parent_run_id, resumes_run_id, root_run_id, depth,"
        " status, fence, created_at, deadline, receipt) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?)",
        (
            new.run_id,
            new.thread_id,
            new.owner_id,
            plain(new.subject_id),
            new.parent_run_id,
            new.resumes_run_id,
            new.root_run_id or new.run_id,
            new.depth,
            fence,
            stamp(now),
            optional_stamp(new.deadline),
            dump(new.receipt),
        ),
    )


def live_with_cause(tx: Tx) -> list[str]:
    """The live runs that are to stop."""
    rows = tx.execute("SELECT run_id FROM runs WHERE status = 'running' AND cause IS NOT NULL")
    return [run_id for (run_id,) in rows]


def set_cause(tx: Tx, run_id: str, cause: Cause) -> None:
    """Stores a run's first cause; does nothing when it has one."""
    tx.execute(
        "UPDATE runs SET cause = ?, cause_reason = ?, cause_at = ? WHERE run_id = ? AND cause IS NULL",
        (cause.kind.value, plain(cause.reason), stamp(cause.at), run_id),
    )


def end_run(tx: Tx, run_id: str, outcome: RunStatus, payload: Mapping[str, Any], now: datetime) -> None:
    """Gives a live run its outcome."""
    tx.execute(
        "UPDATE runs SET status = ?, payload = ?, finished_at = ? WHERE run_id = ? AND status = 'running'",
        (outcome.value, dump(payload), stamp(now), run_id),
    )


def add_note(tx: Tx, run_id: str, kind: str, body: Mapping[str, Any], now: datetime) -> None:
    """Keeps what came too late to be an event."""
    tx.execute("INSERT INTO notes (run_id, kind, body, at) VALUES (?, ?, ?, ?)", (run_id, kind, dump(body), stamp(now)))


def list_notes(tx: Tx, run_id: str) -> tuple[Note, ...]:
    """A run's notes in the order in which they came."""
    rows = tx.execute("SELECT kind, body, at FROM notes WHERE run_id = ? ORDER BY note_no", (run_id,))
    return tuple(Note(run_id=run_id, kind=kind, body=json.loads(body), at=instant(at)) for kind, body, at in rows)


def dump(value: Any) -> str:
    """JSON as it is stored: compact, readable, and always encodable (a lone surrogate is written as an escape)."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def plain(text: str) -> str:
    """A text that every database keeps: no NUL, no lone surrogate."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
