"""Why the store refuses a run, an answer or a write that came too late."""

from __future__ import annotations

from checkpoints.errors import CheckreinError, ConflictError, UsageError


class ThreadBusyError(ConflictError):
    """A run is live on the thread."""

    code = "thread_busy"

    def __init__(self, thread_id: str, run_id: str) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        super().__init__(f"Thread {thread_id} is busy with run {run_id}.")
        self.hint = f"Wait for run {run_id}, or cancel it."


class StaleFenceError(ConflictError):
    """Somebody else owns the thread now, or the run has ended: this writer must stop and touch nothing.

    Attributes:
        held: The fence number that the writer came with.
        current: The thread's fence number.
    """

    code = "stale_fence"
    hint = "Look at the thread again: it moved on without this writer."

    def __init__(self, thread_id: str, *, held: int, current: int) -> None:
        self.thread_id = thread_id
        self.held = held
        self.current = current
        why = "its run has ended" if held == current else f"the thread is at fence {current}"
        super().__init__(f"A write to thread {thread_id} under fence {held} was refused: {why}.")


class GrantReusedError(ConflictError):
    """The grant's request id was used by an earlier admission."""

    code = "grant_reused"
    hint = "Ask for a new grant; each one starts one run."

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(f"Grant {request_id} was used already.")


class CheckpointMovedError(ConflictError):
    """The thread's newest checkpoint is not the one that was granted."""

    code = "checkpoint_moved"
    hint = "Look at the thread again and ask for a new grant."

    def __init__(self, thread_id: str, *, expected: str, found: str) -> None:
        self.thread_id = thread_id
        self.expected = expected
        self.found = found
        super().__init__(
            f"Thread {thread_id} is at checkpoint {found or 'none'}, but the grant was for {expected or 'a new thread'}."
        )


class UnknownRunError(UsageError):
    """There is no run of this id."""

    code = "unknown_run"
    hint = "List the runs to see which there are."

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"There is no run {run_id}.")


class ApprovalConflictError(ConflictError):
    """An answer to an approval that does not wait (any more). One subclass per reason."""

    code = "approval_conflict"
    sentence = "Approval {interrupt_id} does not wait for an answer."

    def __init__(self, interrupt_id: str, thread_id: str) -> None:
        self.interrupt_id = interrupt_id
        self.thread_id = thread_id
        super().__init__(self.sentence.format(interrupt_id=interrupt_id, thread_id=thread_id))


class ApprovalUnknownError(ApprovalConflictError):
    """The thread has no approval of this id."""

    code = "approval_unknown"
    hint = "List what waits for an answer."
    sentence = "Thread {thread_id} has no approval {interrupt_id}."


class ApprovalDecidedError(ApprovalConflictError):
    """Somebody answered first; the first answer stands."""

    code = "approval_decided"
    hint = "Show the thread to see who decided what."
    sentence = "Approval {interrupt_id} was decided already."


class ApprovalExpiredError(ApprovalConflictError):
    """Its time was over before the answer; nothing was consented to."""

    code = "approval_expired"
    hint = "Send the thread a new message; the agent can ask again."
    sentence = "Approval {interrupt_id} expired before the answer."


class ApprovalWithdrawnError(ApprovalConflictError):
    """The run behind it was cancelled."""

    code = "approval_withdrawn"
    hint = "Nothing waits any more. Send the thread a new message to go on."
    sentence = "Approval {interrupt_id} was withdrawn, because its run was cancelled."


class ApprovalSupersededError(ApprovalConflictError):
    """The thread got a new message instead of an answer."""

    code = "approval_superseded"
    hint = "Show the thread; it went on without this answer."
    sentence = "Approval {interrupt_id} was superseded by a newer message."


class EffectConflictError(ConflictError):
    """A journal step that does not follow from where the effect is, or another call under the same id."""

    code = "effect_conflict"
    hint = "Show the thread; the call is not in the state that this step needs."

    def __init__(self, thread_id: str, call_id: str, detail: str) -> None:
        self.thread_id = thread_id
        self.call_id = call_id
        self.detail = detail
        super().__init__(f"Call {call_id} of thread {thread_id}: {detail}.")


class IncompatibleCheckpointError(CheckreinError):
    """The thread was written by another version of the graph, and no migration leads from there.

    Attributes:
        stored: The version that wrote the thread.
        current: The version that tried to read it.
    """

    code = "incompatible_checkpoint"

    def __init__(self, thread_id: str, *, stored: str, current: str) -> None:
        self.thread_id = thread_id
        self.stored = stored
        self.current = current
        super().__init__(f"Thread {thread_id} was written by graph version {stored}; this is version {current}.")
        self.hint = f"Use the program that has graph version {stored}, or one that migrates from it. The thread is untouched."
