"""The policy's answer to one tool call, with everything that was judged on the way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Decision(StrEnum):
    """What happens to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Stage(StrEnum):
    """Which step of the order of decisions spoke; the order is that of the members."""

    FLOOR = "floor"
    DENY_RULE = "deny rule"
    BYPASS = "bypass"
    ALLOW_RULE = "allow rule"
    MARK = "mark"
    ASK = "ask"
    NOBODY = "nobody to ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that a call would do: a simple command, a redirection, an assignment, a doubt, or the call as a whole.

    Attributes:
        text: Its normal form, unescaped: show it through nodes.display.
        decision: The answer for this part alone.
        stage: Which step gave it.
        rule: The rule, mark or floor that spoke; empty when none did.
        reason: Why, as a sentence without its full stop.
        grantable: Whether a person may answer once for all: false for what has no reliable normal form.
        words: The normal form as words, for a rule made from it.
        path: Of a file tool the file, relative to the workspace, for a rule made from it.
    """

    text: str
    decision: Decision
    stage: Stage
    rule: str
    reason: str
    grantable: bool = False
    words: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for the whole call: the worst of its parts, in the order of decisions.

    Attributes:
        decision: What happens.
        stage: Which step decided.
        rule: The rule, mark or floor that decided; empty when none did.
        reason: Why, as a sentence without its full stop.
        parts: Everything that was judged, in the order of the call.
    """

    decision: Decision
    stage: Stage
    rule: str
    reason: str
    parts: tuple[Part, ...]

    def record(self) -> dict[str, Any]:
        """The verdict as JSON for events and approvals."""
        parts = [
            {"text": part.text, "decision": part.decision.value, "rule": part.rule, "reason": part.reason}
            for part in self.parts
        ]
        answer = {"decision": self.decision.value, "stage": self.stage.value, "rule": self.rule, "reason": self.reason}
        return {**answer, "parts": parts}
