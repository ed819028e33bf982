"""The values that the store takes and gives. All frozen; instants are aware UTC, JSON values are plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from checkpoints.status import ApprovalStatus, CauseKind, EffectStatus, RunStatus

FENCE_KEY = "__checkrein_fence"
"""Key in `config["configurable"]` that carries the `Fence`; LangGraph keeps keys with two underscores out of metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Proof of the right to write one thread, checked in the transaction of every write.

    An object and not a number, so that it cannot come in through a request's JSON, and bound to its thread, so that a child
    graph that inherits its parent's config does not take it for its own.
    """

    thread_id: str
    run_id: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a run is to stop, and since when."""

    kind: CauseKind
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantUse:
    """What the store checks of a verified grant.

    Attributes:
        request_id: Consumed by the admission; a second use is refused.
        expires_at: How long the used id must be remembered (a grant is refused by its signature after that).
        expected_fence: The grant's turn_fencing_token: the thread's fence when it was quoted (0 for a new thread).
        expected_checkpoint_id: The grant's checkpoint_snapshot_id: the thread's newest root checkpoint, "" when it has none.
    """

    request_id: str
    expires_at: datetime
    expected_fence: int
    expected_checkpoint_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to admit. `root_run_id` empty means that it is its own root.

    Attributes:
        receipt: What was granted and quoted, as JSON; kept with the run for ever, so no secrets.
        graph_version: Stored with the thread; a thread written by another version is refused (see `threads.py`).
        title: First line of the task, kept for listings when the thread has none yet.
    """

    run_id: str
    thread_id: str
    owner_id: str
    subject_id: str = ""
    parent_run_id: str = ""
    resumes_run_id: str = ""
    root_run_id: str = ""
    depth: int = 0
    deadline: datetime | None = None
    receipt: Mapping[str, Any] = field(default_factory=dict)
    graph_version: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as stored. `payload` is the terminal event's payload, None while it runs."""

    run_id: str
    thread_id: str
    owner_id: str
    subject_id: str
    parent_run_id: str
    resumes_run_id: str
    root_run_id: str
    depth: int
    status: RunStatus
    fence: int
    created_at: datetime
    finished_at: datetime | None
    deadline: datetime | None
    cause: Cause | None
    receipt: Mapping[str, Any]
    payload: Mapping[str, Any] | None

    @property
    def fencing(self) -> Fence:
        """The fence that this run's writes carry."""
        return Fence(thread_id=self.thread_id, run_id=self.run_id, number=self.fence)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApproval:
    """An interrupt that waits for a person.

    Attributes:
        value: The interrupt's value (`action_requests`, `review_configs`), JSON.
        digests: One digest of tool name and validated arguments per action request, in their order.
        expires_at: When it stops being answerable, or None. Aware; a naive instant raises ValueError.
    """

    interrupt_id: str
    checkpoint_id: str
    checkpoint_ns: str = ""
    value: Any = None
    digests: Sequence[str] = ()
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError(f"approval {self.interrupt_id} expires at a naive instant: give it a UTC offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswer:
    """A person's answer to one approval, already checked against its response schema."""

    interrupt_id: str
    decisions: Any
    decided_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An approval as stored.

    Attributes:
        run_id: The parked run that asked.
        decided_run_id: The run that was admitted with the answer, "" until then.
        ended_at: When it left `pending`, None until then.
    """

    interrupt_id: str
    thread_id: str
    run_id: str
    checkpoint_id: str
    checkpoint_ns: str
    value: Any
    digests: tuple[str, ...]
    status: ApprovalStatus
    decisions: Any
    decided_by: str
    decided_run_id: str
    created_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to append: a kind and a JSON payload, bounded and redacted by the store."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as stored. `seq` counts from 1 inside its run, without gaps."""

    run_id: str
    seq: int
    kind: str
    payload: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events after a position. `has_more` says that another page is there already."""

    events: tuple[Event, ...]
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that came too late to be an event of its run: a later cause, the ending of its approval."""

    run_id: str
    kind: str
    body: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that runs things. `birth` is its start as the kernel counts it, so that a reused pid is told apart."""

    owner_id: str
    host: str
    boot_id: str
    pid: int
    birth: str
    beat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """A thread for listings and quotes. `checkpoint_id` is the newest root checkpoint, "" when there is none."""

    thread_id: str
    fence: int
    checkpoint_id: str
    live_run_id: str
    graph_version: str
    title: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRow:
    """One tool call in the journal.

    Attributes:
        digest: Digest of tool name and validated arguments: what was approved.
        scope: Identity of what was started (JSON, for example pid and birth), None before `started`.
        result: The recorded result (JSON), None before `done`.
        resolved_by: Who settled an unknown effect, "" when nobody had to.
    """

    thread_id: str
    call_id: str
    run_id: str
    tool: str
    digest: str
    preview: str
    status: EffectStatus
    scope: Any
    result: Any
    resolved_by: str
    updated_at: datetime
