"""Looking after a store: its size, what may go, threads as files, and everything in it that waits for a person."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from checkpoints.approvals import Approvals
from checkpoints.errors import UsageError
from checkpoints.ledger import Ledger
from checkpoints.portable import export_thread, import_thread
from checkpoints.records import Approval
from checkpoints.retention import PruneReport, Retention, StoreUsage
from checkpoints.store import Store


class ThreadFileError(UsageError):
    """The file of an exported thread cannot be read or written."""

    code = "thread_file"
    hint = "Name a file in a folder that is there and that this user may use."

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        super().__init__(f"The file {path} cannot be used: {error.strerror or error}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One approval as an inbox shows it.

    Attributes:
        approval: What waits.
        title: First line of the thread's task.
        asked_by: The subject of the run that asked; empty where nobody is known.
        depth: 0 for a run that a person started, more for one that another run started.
        age: Seconds since it was asked.
    """

    approval: Approval
    title: str
    asked_by: str
    depth: int
    age: float


class Keeping:
    """The verbs about a store as a whole."""

    def __init__(self, store: Store, ledger: Ledger, approvals: Approvals, retention: Retention) -> None:
        self._store = store
        self._ledger = ledger
        self._approvals = approvals
        self._retention = retention

    async def usage(self, *, largest: int = 10) -> StoreUsage:
        """Bytes by kind, of all and of the largest threads."""
        return await self._retention.usage(largest=largest)

    async def prune(
        self,
        *,
        older_than: timedelta | None = None,
        keep_newest: int | None = None,
        thin: bool = False,
        compact: bool = False,
    ) -> PruneReport:
        """Deletes threads by age and by count, never one that a run or a person needs.

        Args:
            older_than: Threads that were not touched for so long go.
            keep_newest: Threads beyond the so many last touched ones go.
            thin: Whether the threads that stay lose the checkpoints that they can do without.
            compact: Whether the space goes back to the file system at the end; other writes wait meanwhile.
        """
        report = await self._retention.prune(older_than=older_than, keep_newest=keep_newest, thin=thin)
        if compact:
            await self._retention.compact()
        return report

    async def export_thread(self, thread_id: str, path: Path) -> None:
        """Writes a thread to a file, whole or not at all, readable for this user only.

        Raises:
            UnknownThreadError: No such thread.
            ThreadBusyError: A run is live on it.
            ThreadFileError: The file cannot be written.
        """
        try:
            await export_thread(self._store, thread_id, path)
        except OSError as error:
            raise ThreadFileError(path, error) from error

    async def import_thread(self, path: Path, *, thread_id: str = "") -> str:
        """Stores an exported thread, under its own id or another one, and gives the id.

        Raises:
            DamagedExportError: The file is not as it was written; nothing of it was stored.
            ThreadExistsError: The store has a thread of this id.
            ThreadFileError: The file cannot be read.
        """
        try:
            return await import_thread(self._store, path, thread_id=thread_id)
        except OSError as error:
            raise ThreadFileError(path, error) from error

    async def waiting(self) -> tuple[Waiting, ...]:
        """Everything that waits for a person, over all threads, oldest first, with who asked and since when."""
        approvals = await self._approvals.inbox()
        return tuple(await asyncio.gather(*(self._waiting(approval) for approval in approvals)))

    async def _waiting(self, approval: Approval) -> Waiting:
        thread = await self._ledger.thread(approval.thread_id)
        # A thread that another driver of the graph parked has no run here.
        run = await self._ledger.run(approval.run_id) if approval.run_id else None
        return Waiting(
            approval=approval,
            title=thread.title if thread else "",
            asked_by=run.subject_id if run else "",
            depth=run.depth if run else 0,
            age=max(0.0, (self._store.clock.now() - approval.created_at).total_seconds()),
        )
