"""Checkpoints and pending writes inside a transaction: rows in, rows out, nothing decoded.

A lane is one namespace of one thread. Checkpoints and writes are append logs; a large channel value is a blob of its own,
kept once per thread and content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from checkpoints.records import Fence
from checkpoints.threads import ThreadRow, check_fence, ensure_thread
from checkpoints.tx import Row, Tx, one

CHECKPOINT_COLUMNS = "c.seq, l.lane, t.thread_no, t.thread_id, l.ns, c.checkpoint_id, c.parent_id, c.body"
CHECKPOINT_TABLES = "threads t JOIN lanes l ON l.thread_no = t.thread_no JOIN checkpoints c ON c.lane = l.lane"


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint as stored, with where it belongs."""

    seq: int
    lane: int
    thread_no: int
    thread_id: str
    ns: str
    checkpoint_id: bytes
    parent_id: bytes | None
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a write goes and with what right."""

    thread_id: str
    ns: str
    fence: Fence | None
    now: datetime


def put_checkpoint(
    tx: Tx,
    place: Place,
    checkpoint_id: bytes,
    parent_id: bytes | None,
    body: bytes,
    blobs: Sequence[tuple[bytes, bytes]],
    run_id: str,
) -> None:
    """Stores a checkpoint (again: its body is replaced) and makes it the newest of its lane."""
    thread, lane = _enter(tx, place)
    if place.fence is not None and not place.ns:
        _drop_finished_calls(tx, thread)
    for digest, blob in blobs:
        tx.execute(
            "INSERT INTO blobs (thread_no, digest, body) VALUES (?, ?, ?) ON CONFLICT (thread_no, digest) DO NOTHING",
            (thread.number, digest, blob),
        )
    [(seq,)] = tx.execute(
        "INSERT INTO checkpoints (lane, checkpoint_id, parent_id, body) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (lane, checkpoint_id) DO UPDATE SET parent_id = excluded.parent_id, body = excluded.body"
        " RETURNING seq",
        (lane, checkpoint_id, parent_id, body),
    )
    tx.execute("UPDATE lanes SET head = ? WHERE lane = ? AND head < ?", (seq, lane, seq))
    _note_run(tx, lane, run_id)


def _drop_finished_calls(tx: Tx, thread: ThreadRow) -> None:
    """Drops what a run's subgraph calls left: their step is over, and nothing resumes in them any more.

    Their namespaces end in a task id. A new root checkpoint is stored only when all tasks of the step before it have ended,
    so none of them can be live; an interrupt inside one leaves the root where it is.
    """
    for (lane,) in tx.execute("SELECT lane FROM lanes WHERE thread_no = ? AND ns LIKE '%:%'", (thread.number,)):
        for table in ("writes", "checkpoints", "lane_runs", "lanes"):
            tx.execute(f"DELETE FROM {table} WHERE lane = ?", (lane,))


def put_writes(tx: Tx, place: Place, checkpoint_id: bytes, body: bytes, run_id: str) -> None:
    """Appends the writes of one task to a checkpoint, which may itself arrive later."""
    _, lane = _enter(tx, place)
    tx.execute("INSERT INTO writes (lane, checkpoint_id, body) VALUES (?, ?, ?)", (lane, checkpoint_id, body))
    _note_run(tx, lane, run_id)


def get_checkpoint(tx: Tx, thread_id: str, ns: str, checkpoint_id: bytes | None) -> CheckpointRow | None:
    """One checkpoint, the newest of its lane when no id is given."""
    which = "c.seq = l.head" if checkpoint_id is None else "c.checkpoint_id = ?"
    rows = tx.execute(
        f"SELECT {CHECKPOINT_COLUMNS} FROM {CHECKPOINT_TABLES} WHERE t.thread_id = ? AND l.ns = ? AND {which}",
        (thread_id, ns) if checkpoint_id is None else (thread_id, ns, checkpoint_id),
    )
    row = one(rows)
    return None if row is None else CheckpointRow(*row)


def parent_of(tx: Tx, row: CheckpointRow) -> CheckpointRow | None:
    """The checkpoint that this one continued, in the same lane."""
    if row.parent_id is None:
        return None
    found = one(
        tx.execute(
            "SELECT seq, checkpoint_id, parent_id, body FROM checkpoints WHERE lane = ? AND checkpoint_id = ?",
            (row.lane, row.parent_id),
        )
    )
    if found is None:
        return None
    seq, checkpoint_id, parent_id, body = found
    return CheckpointRow(seq, row.lane, row.thread_no, row.thread_id, row.ns, checkpoint_id, parent_id, body)


def page_of_checkpoints(
    tx: Tx, thread_id: str | None, ns: str | None, checkpoint_id: bytes | None, before: int | None, limit: int
) -> list[CheckpointRow]:
    """Checkpoints newest first, below `before` (a seq), filtered by what is not None."""
    wanted = [
        ("t.thread_id = ?", thread_id),
        ("l.ns = ?", ns),
        ("c.checkpoint_id = ?", checkpoint_id),
        ("c.seq < ?", before),
    ]
    used = [(clause, value) for clause, value in wanted if value is not None]
    where = "WHERE " + " AND ".join(clause for clause, _ in used) if used else ""
    rows = tx.execute(
        # Which rows first, from the index alone; their bodies after that, for a page and not for the whole lane.
        f"SELECT {CHECKPOINT_COLUMNS} FROM {CHECKPOINT_TABLES} WHERE c.seq IN"
        f" (SELECT c.seq FROM {CHECKPOINT_TABLES} {where} ORDER BY c.seq DESC LIMIT ?) ORDER BY c.seq DESC",
        (*(value for _, value in used), limit),
    )
    return [CheckpointRow(*row) for row in rows]


def writes_of(tx: Tx, lane: int, checkpoint_id: bytes) -> list[bytes]:
    """The bodies of a checkpoint's writes, in the order in which they came."""
    rows = tx.execute("SELECT body FROM writes WHERE lane = ? AND checkpoint_id = ? ORDER BY seq", (lane, checkpoint_id))
    return [body for (body,) in rows]


def blobs_of(tx: Tx, thread_no: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """The bodies of the named blobs."""
    found: dict[bytes, bytes] = {}
    for digest in digests:
        row: Row | None = one(tx.execute("SELECT body FROM blobs WHERE thread_no = ? AND digest = ?", (thread_no, digest)))
        if row is not None:
            found[digest] = row[0]
    return found


def _note_run(tx: Tx, lane: int, run_id: str) -> None:
    if run_id:
        tx.execute("INSERT INTO lane_runs (run_id, lane) VALUES (?, ?) ON CONFLICT DO NOTHING", (run_id, lane))


def _enter(tx: Tx, place: Place) -> tuple[ThreadRow, int]:
    """The thread and the lane of a write, made when they are new, its right to write checked."""
    thread = ensure_thread(tx, place.thread_id, place.now, lock=tx.for_share)
    check_fence(thread, place.fence)
    row = one(tx.execute("SELECT lane FROM lanes WHERE thread_no = ? AND ns = ?", (thread.number, place.ns)))
    if row is None:
        tx.execute(
            "INSERT INTO lanes (thread_no, ns) VALUES (?, ?) ON CONFLICT (thread_no, ns) DO NOTHING",
            (thread.number, place.ns),
        )
        [row] = tx.execute("SELECT lane FROM lanes WHERE thread_no = ? AND ns = ?", (thread.number, place.ns))
    return thread, row[0]
