"""The run ledger: who runs, why it stopped, what it said. One transaction per fact."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

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
from checkpoints.status import RunStatus


class Ledger:
    """All methods are one transaction each and answer after their commit. Cancelling an await does not undo the write."""

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
        raise NotImplementedError

    async def adopt(self, run_id: str, *, owner_id: str, expected_fence: int) -> Run:
        """Takes over a live run of a dead owner under a new fence and writes `run_recovered`.

        The caller has judged the owner dead (`leases.py`); two adopters are told apart by `expected_fence`.

        Raises:
            StaleFenceError: Somebody adopted it first, or it has ended.
        """
        raise NotImplementedError

    async def append(self, fence: Fence, events: Sequence[NewEvent]) -> int:
        """Appends events to the fence's run and gives the last `seq`.

        Raises:
            StaleFenceError: The run no longer owns its thread.
        """
        raise NotImplementedError

    async def record_cause(self, run_id: str, cause: Cause) -> Cause:
        """Records why the run is to stop and gives the cause that counts: the first one. Callable from any process.

        A later cause becomes a note. On a run that has ended it is a note too and the stored cause is given back.

        Raises:
            UnknownRunError: No such run.
        """
        raise NotImplementedError

    async def wait_cause(self, run_id: str) -> Cause:
        """Waits until the run has a cause, also one recorded by another process (seen within about 0.1 s)."""
        raise NotImplementedError

    async def finish(
        self,
        run_id: str,
        fence: int,
        outcome: RunStatus,
        payload: Mapping[str, Any],
        pending: Sequence[NewApproval] = (),
    ) -> Run:
        """Ends the run: status, one `run_terminal` event, approvals, thread released.

        The first recorded cause has the last word on the outcome: a run that reports `completed` after a durable cancel is
        stored as `cancelled`, and `payload["outcome"]` is set to what is stored. Pending approvals are kept only when the
        outcome is `awaiting_input`; otherwise they are stored as withdrawn. Idempotent: on a run that has ended nothing
        changes and the stored run is given back.

        Raises:
            StaleFenceError: The run lives under another fence.
            UnknownRunError: No such run.
        """
        raise NotImplementedError

    async def settle(self, run_id: str, cause: Cause, payload: Mapping[str, Any]) -> Run:
        """Ends a run whose owner is gone as its first durable cause says (`cause` where it has none), fence taken.

        The caller has judged the owner dead and stopped its processes. Idempotent like `finish`.
        """
        raise NotImplementedError

    async def withdraw(self, thread_id: str, *, reason: str) -> tuple[Approval, ...]:
        """Withdraws every pending approval of a parked thread (cancel); the parked run's outcome stays as it is."""
        raise NotImplementedError

    async def run(self, run_id: str) -> Run:
        """One run; UnknownRunError if there is none."""
        raise NotImplementedError

    async def runs(
        self, *, thread_id: str = "", status: RunStatus | None = None, parent_run_id: str = "", limit: int = 100
    ) -> tuple[Run, ...]:
        """Runs, newest first, filtered."""
        raise NotImplementedError

    async def thread(self, thread_id: str) -> ThreadInfo | None:
        """What a quote needs of a thread; None for one never seen (its fence is then 0 and its checkpoint "")."""
        raise NotImplementedError

    async def threads(self, *, limit: int = 100, before: str = "") -> tuple[ThreadInfo, ...]:
        """Threads, last touched first; `before` is the thread id that the last page ended with."""
        raise NotImplementedError

    async def events(self, run_id: str, *, after: int = 0, limit: int = 1000) -> EventPage:
        """A page of the run's events with `seq` above `after`."""
        raise NotImplementedError

    def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """The run's events, stored ones first and then live ones, until `run_terminal`. Works from any process."""
        raise NotImplementedError

    async def notes(self, run_id: str) -> tuple[Note, ...]:
        """What came after the fact: later causes, endings of approvals."""
        raise NotImplementedError
