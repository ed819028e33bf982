"""What the nodes work with: made once per runtime, closed over by the graph, never part of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints.artifacts import Artifacts
from checkpoints.journal import Journal
from nodes.answering import Answering
from nodes.belongings import Belongings
from nodes.effects import Effects
from nodes.events import Events
from nodes.gate import Gate
from nodes.judging import PolicyJudge
from nodes.native import Native
from nodes.sandbox import Sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """One runtime's tools of the trade.

    Attributes:
        gate: The tools and the policy.
        judge: The policy, for who also keeps standing permissions.
        answering: Gives model replies.
        events: The sinks of live runs.
        journal: The effect journal.
        effects: The journal as nodes use it.
        native: The native commands.
        belongings: Everything that runs, by owner.
        sandboxes: The sandbox sessions.
        artifacts: Where full outputs are kept.
        limits: The user's own defaults for limits that a run leaves open, by `AgentContext`'s names.
    """

    gate: Gate
    judge: PolicyJudge
    answering: Answering
    events: Events
    journal: Journal
    effects: Effects
    native: Native
    belongings: Belongings
    sandboxes: Sandboxes
    artifacts: Artifacts
    limits: Mapping[str, Any]
