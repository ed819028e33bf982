"""Approvals inside a transaction: asked, answered, ended in one of four ways."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from checkpoints.records import Approval, ApprovalAnswer, NewApproval
from checkpoints.run_errors import (
    ApprovalConflictError,
    ApprovalDecidedError,
    ApprovalExpiredError,
    ApprovalSupersededError,
    ApprovalUnknownError,
    ApprovalWithdrawnError,
)
from checkpoints.run_rows import add_note, dump, plain
from checkpoints.status import ApprovalStatus
from checkpoints.tx import Row, Tx, instant, one, optional_instant, optional_stamp, stamp

COLUMNS = (
    "interrupt_id, thread_id, run_id, checkpoint_id, checkpoint_ns, value, digests, status, decisions,"
    " decided_by, decided_run_id, created_at, expires_at, ended_at, reason"
)

REFUSALS: Mapping[ApprovalStatus, type[ApprovalConflictError]] = {
    ApprovalStatus.DECIDED: ApprovalDecidedError,
    ApprovalStatus.EXPIRED: ApprovalExpiredError,
    ApprovalStatus.WITHDRAWN: ApprovalWithdrawnError,
    ApprovalStatus.SUPERSEDED: ApprovalSupersededError,
}


def approval_of(row: Row) -> Approval:
    """An approval from its COLUMNS."""
    return Approval(
        interrupt_id=row[0],
        thread_id=row[1],
        run_id=row[2],
        checkpoint_id=row[3],
        checkpoint_ns=row[4],
        value=json.loads(row[5]),
        digests=tuple(json.loads(row[6])),
        status=ApprovalStatus(row[7]),
        decisions=None if row[8] is None else json.loads(row[8]),
        decided_by=row[9],
        decided_run_id=row[10],
        created_at=instant(row[11]),
        expires_at=optional_instant(row[12]),
        ended_at=optional_instant(row[13]),
        reason=row[14],
    )


def find(tx: Tx, where: str, params: Sequence[object], limit: int = 1000) -> tuple[Approval, ...]:
    """Approvals that fit, oldest first. `where` is this package's own text."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM approvals WHERE {where} ORDER BY approval_no LIMIT ?",
        (*params, limit),
    )
    return tuple(approval_of(row) for row in rows)


def ask(tx: Tx, thread_id: str, run_id: str, new: NewApproval, now: datetime) -> None:
    """Stores what an interrupt asks.

    One that was there before (a partly answered turn, a run that failed before it took the answer) waits again and now
    belongs to this run.
    """
    tx.execute(
        "INSERT INTO approvals (thread_id, interrupt_id, run_id, checkpoint_id, checkpoint_ns, value, digests, status,"
        " created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?)"
        " ON CONFLICT (thread_id, interrupt_id) DO UPDATE SET run_id = excluded.run_id,"
        " checkpoint_id = excluded.checkpoint_id, value = excluded.value, digests = excluded.digests,"
        " status = 'pending', ended_at = NULL,"
        " decisions = NULL, decided_by = '', decided_run_id = '', reason = ''",
        (
            thread_id,
            new.interrupt_id,
            run_id,
            new.checkpoint_id,
            new.checkpoint_ns,
            dump(new.value),
            dump(list(new.digests)),
            stamp(now),
            optional_stamp(new.expires_at),
        ),
    )


def decide(tx: Tx, thread_id: str, run_id: str, answer: ApprovalAnswer, now: datetime) -> None:
    """Gives a pending approval its decision.

    Raises:
        ApprovalConflictError: The subclass says why it does not wait.
    """
    row = one(
        tx.execute(
            "SELECT t.status, t.expires_at FROM approvals t WHERE t.thread_id = ? AND t.interrupt_id = ?" + tx.for_update,
            (thread_id, answer.interrupt_id),
        )
    )
    if row is None:
        raise ApprovalUnknownError(answer.interrupt_id, thread_id)
    status, expires_at = ApprovalStatus(row[0]), row[1]
    if status is ApprovalStatus.PENDING and expires_at is not None and expires_at <= stamp(now):
        status = ApprovalStatus.EXPIRED
    if status is not ApprovalStatus.PENDING:
        raise REFUSALS[status](answer.interrupt_id, thread_id)
    tx.execute(
        "UPDATE approvals SET status = 'decided', decisions = ?, decided_by = ?, decided_run_id = ?, ended_at = ?"
        " WHERE thread_id = ? AND interrupt_id = ?",
        (
            dump(answer.decisions),
            plain(answer.decided_by),
            run_id,
            stamp(now),
            thread_id,
            answer.interrupt_id,
        ),
    )


def end_pending(
    tx: Tx, thread_id: str, status: ApprovalStatus, reason: str, now: datetime, *, until: datetime | None = None
) -> tuple[Approval, ...]:
    """Ends every pending approval of a thread the same way and notes it with the run that asked.

    With `until`, only those that expire by then.
    """
    due = "" if until is None else " AND expires_at <= ?"
    rows = tx.execute(
        "UPDATE approvals SET status = ?, reason = ?, ended_at = ? WHERE thread_id = ? AND status = 'pending'"
        f"{due} RETURNING {COLUMNS}",
        (status.value, plain(reason), stamp(now), thread_id, *(() if until is None else (stamp(until),))),
    )
    ended = tuple(approval_of(row) for row in rows)
    for approval in ended:
        note = {"interrupt_id": approval.interrupt_id, "reason": reason}
        add_note(tx, approval.run_id, f"approval_{status.value}", note, now)
    return ended


def expire_thread(tx: Tx, thread_id: str, now: datetime) -> tuple[Approval, ...]:
    """Marks the approvals of one thread whose time is over; each is marked, and noted, once."""
    return end_pending(tx, thread_id, ApprovalStatus.EXPIRED, "its time was over", now, until=now)


def expire_due(tx: Tx, now: datetime) -> None:
    """`expire_thread` for every thread of the store."""
    due = "SELECT DISTINCT thread_id FROM approvals WHERE status = 'pending' AND expires_at <= ?"
    for (thread_id,) in tx.execute(due, (stamp(now),)):
        expire_thread(tx, thread_id, now)


def any_due(tx: Tx, now: datetime) -> bool:
    """True when some approval's time is over and nobody has marked it."""
    return bool(tx.execute("SELECT 1 FROM approvals WHERE status = 'pending' AND expires_at <= ? LIMIT 1", (stamp(now),)))
