"""How the tests of the policy put a call to it."""

from __future__ import annotations

from nodes.policy.judge import Policy, Posture, ReviewMode
from nodes.policy.paths import Ground
from nodes.policy.rules import Rule
from nodes.policy.verdict import Decision, Verdict
from nodes.tools.tool import Effect

AUTO = Posture(mode=ReviewMode.AUTO)
MANUAL = Posture(mode=ReviewMode.MANUAL)


def rule(decision: str, command: str = "", *, tool: str = "*", path: str | None = None) -> Rule:
    """A rule as a person writes it."""
    return Rule(decision=Decision(decision), tool=tool, command=tuple(command.split()) or None, path=path)


def judged(ground: Ground, command: str, *rules: Rule, posture: Posture = AUTO, tool: str = "execute") -> Verdict:
    """The verdict on a shell command."""
    return Policy(ground=ground, rules=rules).judge(tool, Effect.OUTSIDE, {"command": command}, posture)
