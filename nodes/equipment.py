"""What the nodes work with: made once per runtime, closed over by the graph, never part of the state."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints.journal import Journal
from nodes.belongings import Belongings
from nodes.effects import Effects
from nodes.gate import Gate
from nodes.judging import PolicyJudge
from nodes.model import Answerer
from nodes.native import Native
from nodes.sandbox import Sandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """One runtime's tools of the trade.

    Attributes:
        gate: The tools and the policy.
        judge: The policy, for who also keeps standing permissions.
        answer: Gives one model reply.
        journal: The effect journal.
        effects: The journal as nodes use it.
        native: The native commands.
        belongings: Everything that runs, by owner.
        sandboxes: The sandbox sessions.
    """

    gate: Gate
    judge: PolicyJudge
    answer: Answerer
    journal: Journal
    effects: Effects
    native: Native
    belongings: Belongings
    sandboxes: Sandboxes
