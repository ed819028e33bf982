"""The run ledger: who runs, why it stopped, what it said. One transaction per fact."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from checkpoints import admission, approval_rows, event_rows, run_rows
from checkpoints.records import (
    Approval,
    ApprovalAnswer,
    Cause,
    Event,
    EventPage,
    Fence,
    GrantUse,
    NewApproval,
    NewEvent,
    NewRun,
    Note,
    Run,
    ThreadInfo,
)
from checkpoints.run_errors import ApprovalExpiredError
from checkpoints.status import CAUSE_ALLOWS, CauseKind, RunStatus
from checkpoints.store import Store
from checkpoints.thread_list import list_threads, thread_info
from checkpoints.threads import require_fence
from checkpoints.tx import Tx
from checkpoints.watch import SharedPoll, look_again


class Ledger:
    """All methods are one transaction each and answer after their commit. Cancelling an await does not undo the write.

    Args:
        store: An open store.
        compatible: Versions of the graph, besides a run's own, whose threads may be continued.
    """

    def __init__(self, store: Store, *, compatible: Iterable[str] = ()) -> None:
        self._store = store
        self._compatible = frozenset(compatible)
        self._causes = SharedPoll(self._runs_to_stop, store.signals, "cause")

    async def admit(self, new: NewRun, grant: GrantUse, answers: Sequence[ApprovalAnswer] | None = None) -> Run:
        """Starts a run: consumes the grant, takes the thread, settles approvals, writes `run_started`.

        With `answers`, those approvals become decided and the others stay pending. With None this is new input, and every
        pending approval of the thread is superseded. An expired approval is marked so even though the call is refused.

        Raises:
            GrantReusedError: The request id was used before.
            StaleFenceError: The thread's fence is not the grant's.
            CheckpointMovedError: The thread's newest root checkpoint is not the grant's.
            ThreadBusyError: A run is live on the thread.
            ApprovalConflictError: One of its subclasses, for an answer to something that is not pending (any more).
            IncompatibleCheckpointError: The thread was written by another graph version.
        """
        now = self._store.clock.now()
        started = event_rows.bounded({"run_id": new.run_id, "thread_id": new.thread_id}, self._store.redact)
        try:
            return await self._store.write(admission.admit, new, grant, answers, started, self._compatible, now)
        except ApprovalExpiredError:
            # The refused admission is taken back whole; that the approval's time is over stays true.
            await self._store.write(approval_rows.expire_due, now)
            raise

    async def adopt(self, run_id: str, *, owner_id: str, expected_fence: int) -> Run:
        """Takes over a live run of a dead owner under a new fence and writes `run_recovered`.

        The caller has judged the owner dead (`leases.py`); two adopters are told apart by `expected_fence`.

        Raises:
            StaleFenceError: Somebody adopted it first, or it has ended.
        """
        return await self._store.write(admission.adopt, run_id, owner_id, expected_fence, self._store.clock.now())

    async def append(self, fence: Fence, events: Sequence[NewEvent]) -> int:
        """Appends events to the fence's run and gives the last `seq`.

        Raises:
            StaleFenceError: The run no longer owns its thread.
        """
        ready = event_rows.ready(events, self._store.redact)
        seq = await self._store.write(_append_fenced, fence, ready, self._store.clock.now())
        self._store.signals.notify("events", fence.run_id)
        return seq

    async def record_cause(self, run_id: str, cause: Cause) -> Cause:
        """Records why the run is to stop and gives the cause that counts: the first one. Callable from any process.

        A later cause becomes a note. On a run that has ended it is a note too and the stored cause is given back.

        Raises:
            UnknownRunError: No such run.
        """
        stored = await self._store.write(admission.record_cause, run_id, cause, self._store.clock.now())
        self._store.signals.notify("cause", run_id)
        return stored

    async def wait_cause(self, run_id: str) -> Cause:
        """Waits until the run has a cause, also one recorded by another process (seen within about 0.1 s).

        A run that ends has a cause too (`finish` at least). Cheap for many runs at once: one look serves all of them.
        """
        with self._store.signals.listen("cause", run_id) as woken, self._causes.wanted():
            while True:
                woken.clear()
                cause = (await self._store.read(run_rows.get_run, run_id)).cause
                if cause is not None:
                    return cause
                await woken.wait()

    async def finish(
        self,
        run_id: str,
        fence: int,
        outcome: RunStatus,
        payload: Mapping[str, Any],
        pending: Sequence[NewApproval] = (),
    ) -> Run:
        """Ends the run: status, one `run_terminal` event, approvals, thread released.

        The first recorded cause has the last word on the outcome: a run that reports `completed` after a durable cancel
        is stored as `cancelled`, and `payload["outcome"]` is set to what is stored. What is pending waits from now on,
        but for a cancelled run, whose approvals are stored as withdrawn. Idempotent: on a run that has ended nothing
        changes and the stored run is given back. The payload is stored as it is, not bounded: keep it small.

        Raises:
            StaleFenceError: The run lives under another fence.
            UnknownRunError: No such run.
            StoreError: A checkpoint write of the thread was lost before (a full disk, say). The run lives on: finish it
                as failed.
        """
        now = self._store.clock.now()
        run = await self._store.write(self._finish, run_id, fence, outcome, payload, pending, now)
        self._announce_end(run_id)
        return run

    async def settle(self, run_id: str, cause: Cause, payload: Mapping[str, Any]) -> Run:
        """Ends a run whose owner is gone as its first durable cause says (`cause` where it has none), fence taken.

        The caller has judged the owner dead and stopped its processes. Idempotent like `finish`.
        """
        run = await self._store.write(admission.settle, run_id, cause, payload, self._store.clock.now())
        self._announce_end(run_id)
        return run

    async def withdraw(self, thread_id: str, *, reason: str) -> tuple[Approval, ...]:
        """Withdraws every pending approval of a parked thread (cancel); the parked run's outcome stays as it is.

        Raises:
            ThreadBusyError: A run is live; cancel that run instead.
        """
        return await self._store.write(admission.withdraw, thread_id, reason, self._store.clock.now())

    async def run(self, run_id: str) -> Run:
        """One run; UnknownRunError if there is none."""
        return await self._store.read(run_rows.get_run, run_id)

    async def runs(
        self, *, thread_id: str = "", status: RunStatus | None = None, parent_run_id: str = "", limit: int = 100
    ) -> tuple[Run, ...]:
        """Runs, newest first, filtered."""
        wanted = (("thread_id", thread_id), ("status", status and status.value), ("parent_run_id", parent_run_id))
        return await self._store.read(run_rows.list_runs, [pair for pair in wanted if pair[1]], limit)

    async def thread(self, thread_id: str) -> ThreadInfo | None:
        """What a quote needs of a thread; None for one never seen (its fence is then 0 and its checkpoint "")."""
        return await self._store.read(thread_info, thread_id)

    async def threads(self, *, limit: int = 100, before: str = "") -> tuple[ThreadInfo, ...]:
        """Threads, last touched first; `before` is the thread id that the last page ended with."""
        return await self._store.read(list_threads, limit, before)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        """A page of the run's events with `seq` above `after`."""
        return await self._store.read(event_rows.page, run_id, after, limit)

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """The run's events, stored ones first and then live ones, until `run_terminal`. Works from any process.

        Raises:
            UnknownRunError: No such run.
        """
        await self.run(run_id)
        with self._store.signals.listen("events", run_id) as woken:
            while True:
                woken.clear()
                page = await self.events(run_id, after=after)
                for event in page.events:
                    yield event
                    if event.kind == admission.TERMINAL:
                        return
                    after = event.seq
                if not page.has_more:
                    await look_again(woken, self._store.signals.poll_seconds)

    async def notes(self, run_id: str) -> tuple[Note, ...]:
        """What came after the fact: later causes, endings of approvals."""
        return await self._store.read(run_rows.list_notes, run_id)

    def _finish(
        self,
        tx: Tx,
        run_id: str,
        fence: int,
        outcome: RunStatus,
        payload: Mapping[str, Any],
        pending: Sequence[NewApproval],
        now: datetime,
    ) -> Run:
        lost = self._store.lost(run_rows.get_run(tx, run_id).thread_id)
        if lost is not None and outcome in CAUSE_ALLOWS[CauseKind.FINISH]:
            raise lost
        return admission.finish(tx, run_id, fence, outcome, payload, pending, now)

    def _announce_end(self, run_id: str) -> None:
        self._store.signals.notify("events", run_id)
        self._store.signals.notify("cause", run_id)

    async def _runs_to_stop(self) -> Sequence[str]:
        return await self._store.read(run_rows.live_with_cause)


def _append_fenced(tx: Tx, fence: Fence, events: Sequence[tuple[str, str]], now: datetime) -> int:
    require_fence(tx, fence)
    return event_rows.append(tx, fence.run_id, events, now)
