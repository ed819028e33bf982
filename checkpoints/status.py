"""What a run, an approval and an effect may become: three tables, and the two lines that read them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run is. The five after `running` are outcomes and final."""

    RUNNING = "running"
    COMPLETED = "completed"
    AWAITING_INPUT = "awaiting_input"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """True for an outcome."""
        return not RUN_NEXT[self]


class CauseKind(StrEnum):
    """Why a run stops. The first one recorded decides; later ones are notes."""

    FINISH = "finish"
    FAILURE = "failure"
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    LOST = "lost"


class ApprovalStatus(StrEnum):
    """Where an approval is. The four after `pending` are endings and final."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"


class EffectStatus(StrEnum):
    """Where an effect is. `unknown` waits for a person; `done` is final."""

    INTENT = "intent"
    STARTED = "started"
    DONE = "done"
    UNKNOWN = "unknown"


OUTCOMES = frozenset(RunStatus) - {RunStatus.RUNNING}

RUN_NEXT: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.RUNNING: OUTCOMES,
    **dict.fromkeys(OUTCOMES, frozenset[RunStatus]()),
}

APPROVAL_NEXT: Mapping[ApprovalStatus, frozenset[ApprovalStatus]] = {
    ApprovalStatus.PENDING: frozenset(ApprovalStatus) - {ApprovalStatus.PENDING},
    **dict.fromkeys(frozenset(ApprovalStatus) - {ApprovalStatus.PENDING}, frozenset[ApprovalStatus]()),
}

EFFECT_NEXT: Mapping[EffectStatus, frozenset[EffectStatus]] = {
    EffectStatus.INTENT: frozenset({EffectStatus.STARTED, EffectStatus.DONE}),
    EffectStatus.STARTED: frozenset({EffectStatus.DONE, EffectStatus.UNKNOWN}),
    EffectStatus.UNKNOWN: frozenset({EffectStatus.INTENT, EffectStatus.DONE}),
    EffectStatus.DONE: frozenset(),
}

CAUSE_ALLOWS: Mapping[CauseKind, frozenset[RunStatus]] = {
    CauseKind.FINISH: frozenset({RunStatus.COMPLETED, RunStatus.AWAITING_INPUT}),
    CauseKind.FAILURE: frozenset({RunStatus.FAILED}),
    CauseKind.CANCEL: frozenset({RunStatus.CANCELLED}),
    CauseKind.TIMEOUT: frozenset({RunStatus.TIMEOUT}),
    CauseKind.LOST: frozenset({RunStatus.FAILED}),
}
"""The outcomes that a first cause leaves possible; a run that reports another one is given the cause's."""


def may_become(now: RunStatus, then: RunStatus) -> bool:
    """True when a run may go from one status to the other."""
    return then in RUN_NEXT[now]


def outcome_under(cause: CauseKind, reported: RunStatus) -> RunStatus:
    """The outcome to store: the reported one where the first cause allows it, else the only one that it does allow."""
    allowed = CAUSE_ALLOWS[cause]
    return reported if reported in allowed else min(allowed)


def cause_of_outcome(outcome: RunStatus) -> CauseKind:
    """The cause that an outcome implies when nothing was recorded before it."""
    return next(kind for kind in CauseKind if outcome in CAUSE_ALLOWS[kind])
