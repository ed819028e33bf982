"""What a person or another driver of the graph leaves open: shortened ids, and threads that moved without a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from checkpoints import approval_rows
from checkpoints.records import NewApproval
from checkpoints.status import ApprovalStatus
from checkpoints.threads import load_thread
from checkpoints.tx import Tx

SHORTEST_PREFIX = 4
"""Characters below which the beginning of an id is taken for a typing slip."""


def threads_named(tx: Tx, name: str) -> tuple[str, ...]:
    """The threads that a thread id or run id, or the beginning of one, may mean; at most two, the exact one alone."""
    exact = tx.execute(
        "SELECT thread_id FROM threads WHERE thread_id = ? UNION SELECT thread_id FROM runs WHERE run_id = ?", (name, name)
    )
    if exact or len(name) < SHORTEST_PREFIX:
        return tuple(row[0] for row in exact[:1])
    like = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    rows = tx.execute(
        "SELECT thread_id FROM threads WHERE thread_id LIKE ? ESCAPE '\\'"
        " UNION SELECT thread_id FROM runs WHERE run_id LIKE ? ESCAPE '\\' LIMIT 2",
        (like, like),
    )
    return tuple(row[0] for row in rows)


def align_approvals(tx: Tx, thread_id: str, waiting: Sequence[NewApproval], now: datetime) -> None:
    """Brings the approvals of a thread in line with its newest checkpoint; does nothing while a run is live.

    LangGraph's server drives the graph without a ledger. What waits in the checkpoint and was never asked here is asked
    now; what was pending here and waits no longer was answered there, and is superseded.
    """
    thread = load_thread(tx, thread_id, lock=tx.for_update)
    if thread is None or thread.live_run_id:
        return
    known = {approval.interrupt_id: approval for approval in approval_rows.find(tx, "thread_id = ?", (thread_id,))}
    ids = {new.interrupt_id for new in waiting}
    stale = [key for key, approval in known.items() if approval.status is ApprovalStatus.PENDING and key not in ids]
    if stale:
        approval_rows.end_pending(tx, thread_id, ApprovalStatus.SUPERSEDED, "answered without this ledger", now)
    for new in waiting:
        if new.interrupt_id not in known or (stale and known[new.interrupt_id].status is ApprovalStatus.PENDING):
            approval_rows.ask(tx, thread_id, "", new, now)
