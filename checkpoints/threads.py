"""A thread's row: its fence, who holds it, and the check that every write passes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from checkpoints.records import Fence
from checkpoints.run_errors import StaleFenceError, ThreadBusyError
from checkpoints.tx import Tx, one, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """A thread inside a transaction. `live_run_id` is "" when no run is live."""

    number: int
    thread_id: str
    fence: int
    live_run_id: str
    graph_version: str
    title: str


def load_thread(tx: Tx, thread_id: str, *, lock: str = "") -> ThreadRow | None:
    """The thread's row, locked with one of the transaction's clauses, or None."""
    row = one(
        tx.execute(
            "SELECT t.thread_no, t.fence, t.graph_version, t.title,"
            " (SELECT r.run_id FROM runs r WHERE r.thread_id = t.thread_id AND r.status = 'running')"
            f" FROM threads t WHERE t.thread_id = ?{lock}",
            (thread_id,),
        )
    )
    if row is None:
        return None
    return ThreadRow(
        number=row[0], thread_id=thread_id, fence=row[1], graph_version=row[2], title=row[3], live_run_id=row[4] or ""
    )


def ensure_thread(tx: Tx, thread_id: str, now: datetime, *, lock: str = "") -> ThreadRow:
    """The thread's row, made when it is not there."""
    found = load_thread(tx, thread_id, lock=lock)
    if found is not None:
        return found
    tx.execute(
        "INSERT INTO threads (thread_id, created_at, updated_at) VALUES (?, ?, ?) ON CONFLICT (thread_id) DO NOTHING",
        (thread_id, stamp(now), stamp(now)),
    )
    made = load_thread(tx, thread_id, lock=lock)
    assert made is not None
    return made


def check_fence(thread: ThreadRow, fence: Fence | None) -> None:
    """Refuses a writer that does not own the thread.

    A writer with a fence must be the live run that the fence was made for. One without (LangGraph's server, a script, a
    fence of another thread) may write only while no run is live.

    Raises:
        StaleFenceError: The fence is not the thread's, or its run has ended.
        ThreadBusyError: A run is live and the writer has no fence.
    """
    if fence is None or fence.thread_id != thread.thread_id:
        if thread.live_run_id:
            raise ThreadBusyError(thread.thread_id, thread.live_run_id)
    elif fence.number != thread.fence or fence.run_id != thread.live_run_id:
        raise StaleFenceError(thread.thread_id, held=fence.number, current=thread.fence)


def require_fence(tx: Tx, fence: Fence) -> ThreadRow:
    """The row of the fence's thread, kept as it is until the commit.

    Raises:
        StaleFenceError: The fence is not the thread's, or its run has ended.
    """
    thread = load_thread(tx, fence.thread_id, lock=tx.for_share)
    if thread is None:
        raise StaleFenceError(fence.thread_id, held=fence.number, current=0)
    check_fence(thread, fence)
    return thread
