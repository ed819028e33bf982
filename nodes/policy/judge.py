"""The order of decisions, in one place: hard floor, deny rules, yolo or unattended, allow rules, ask."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from checkpoints.errors import UsageError
from nodes.policy.floor import forbidden_write
from nodes.policy.paths import Ground, stays_inside, targets
from nodes.policy.rules import Rule, strictest
from nodes.policy.script import Word
from nodes.policy.shell import Bench, floor_part, judge_command, ruled_part, worst
from nodes.policy.verdict import Decision, Part, Stage, Verdict
from nodes.tools.tool import Effect

COMMAND_ARGUMENT = "command"
"""Any tool's text argument of this name is a shell command, judged as such whatever the tool is called (and however it runs it:
in the background, on a schedule, in a child)."""

PATH_ARGUMENT = "path"


class ReviewMode(StrEnum):
    """How much is asked."""

    MANUAL = "manual"
    """Every call with an effect asks, unless a rule or a grant of a person allows it."""

    AUTO = "auto"
    """Commands that only read inside the workspace run too (see `marks`); everything else asks."""


class PostureError(UsageError):
    """Unattended without finite: nobody is there, and yet the run would wait for somebody."""

    code = "invalid_posture"
    hint = "Say finite too, or leave unattended out."

    def __str__(self) -> str:
        return "A run cannot be unattended without being finite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Posture:
    """Who is there to be asked, for one turn.

    Attributes:
        mode: The review mode.
        finite: A one-shot caller that cannot stay to answer: what would ask is denied at once.
        unattended: Nobody is there, and the caller answers for it: what would ask runs. Needs finite.
        yolo: Approvals are bypassed. Beats neither the floor nor a deny rule.
    """

    mode: ReviewMode = ReviewMode.MANUAL
    finite: bool = False
    unattended: bool = False
    yolo: bool = False

    def __post_init__(self) -> None:
        """Refuses the one combination that makes no sense.

        Raises:
            PostureError: Unattended without finite.
        """
        if self.unattended and not self.finite:
            raise PostureError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules in force, and the folders that they speak of.

    Attributes:
        ground: Workspace, home and what is protected.
        rules: From the configuration files, the user's before the workspace's.
        notes: What the person should know about the files, for example allow rules of a workspace that were left out.
    """

    ground: Ground
    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()

    def judge(
        self, tool: str, effect: Effect, args: Mapping[str, Any], posture: Posture, grants: Sequence[Rule] = ()
    ) -> Verdict:
        """Decides on one call. Looks at the disk (links, folders), so run it in a thread; changes nothing, never raises.

        Args:
            tool: Name of the tool.
            effect: What the tool may change.
            args: Its validated arguments.
            posture: Who is there.
            grants: Rules that a person granted for this session or for good.
        """
        rules = (*self.rules, *grants)
        return _combined(self._parts(tool, effect, args, posture, rules), posture)

    def _parts(
        self, tool: str, effect: Effect, args: Mapping[str, Any], posture: Posture, rules: Sequence[Rule]
    ) -> tuple[Part, ...]:
        command, path = args.get(COMMAND_ARGUMENT), args.get(PATH_ARGUMENT)
        rule = strictest(rule for rule in rules if rule.matches_call(tool))
        if rule is not None and rule.decision is not Decision.ALLOW:
            return (ruled_part(tool, rule),)
        if isinstance(command, str):
            bench = Bench(tool=tool, rules=rules, ground=self.ground, marks=posture.mode is ReviewMode.AUTO)
            parts = judge_command(command, bench)
            return parts if rule is None else tuple(_allowed_by(part, rule) for part in parts)
        if isinstance(path, str) and effect is not Effect.OUTSIDE:
            return (self._file(tool, effect, path, rule, rules),)
        return (self._plain(tool, effect, rule),)

    def _plain(self, tool: str, effect: Effect, rule: Rule | None) -> Part:
        if rule is not None:
            return ruled_part(tool, rule)
        return _harmless(tool) if effect is Effect.NONE else _asking(tool, "no rule allows it")

    def _file(self, tool: str, effect: Effect, path: str, rule: Rule | None, rules: Sequence[Rule]) -> Part:
        """A file tool. A path that leads out is left to the tool itself, which refuses it and tells the model."""
        text = f"{tool} {path}"
        word = Word(text=path.replace("\0", ""))
        folders = (os.path.realpath(self.ground.workspace),)
        reason = forbidden_write(word, folders, self.ground) if effect is not Effect.NONE else ""
        if reason:
            return floor_part(text, reason)
        relative = self.ground.relative(targets(word, folders, self.ground)[0])
        spoken = strictest(found for found in rules if found.matches_path(tool, relative) or found == rule)
        if spoken is not None:
            return ruled_part(text, spoken)
        if effect is Effect.NONE:
            return _harmless(text)
        where = "" if stays_inside(word, folders, self.ground) else ", and it leads out of the workspace"
        return _asking(text, f"it writes a file and no rule allows that{where}", relative)


def _harmless(text: str) -> Part:
    return Part(text=text, decision=Decision.ALLOW, stage=Stage.MARK, rule="mark: no effect", reason="it changes nothing")


def _asking(text: str, reason: str, path: str = "") -> Part:
    """A part that asks. Without a file a grant could name nothing but the tool as a whole, so there is none."""
    return Part(text=text, decision=Decision.ASK, stage=Stage.ASK, rule="", reason=reason, grantable=bool(path), path=path)


def grants_for(tool: str, verdict: Verdict, source: str) -> tuple[Rule, ...]:
    """Rules that let exactly what was asked run unasked from now on, for `session` and `always` answers.

    Args:
        tool: The tool that was called.
        verdict: What the policy said about the call.
        source: The grant's id, by which it is listed and revoked.

    Returns:
        One exact rule for each part that asked; none at all when a part has no reliable normal form, for then nothing short of
        asking again is safe.
    """
    asked = [part for part in verdict.parts if part.decision is Decision.ASK]
    if not asked or not all(part.grantable for part in asked):
        return ()
    return tuple(_grant(tool, part, source) for part in asked)


def _grant(tool: str, part: Part, source: str) -> Rule:
    if part.path:
        return Rule(decision=Decision.ALLOW, tool=tool, path=part.path, exact=True, source=source)
    return Rule(decision=Decision.ALLOW, tool=tool, command=part.words, exact=True, source=source)


def _allowed_by(part: Part, rule: Rule) -> Part:
    """A rule that allows a tool as a whole allows each part that would ask; what is denied stays denied."""
    asks_by_default = part.decision is Decision.ASK and not part.rule
    return ruled_part(part.text, rule) if asks_by_default else part


def _combined(parts: tuple[Part, ...], posture: Posture) -> Verdict:
    decisive = worst(parts)
    if decisive.decision is Decision.DENY:
        return _verdict(decisive, parts)
    if posture.yolo or posture.unattended:
        word = "yolo" if posture.yolo else "unattended"
        reason = f"approvals are bypassed ({word})"
        return Verdict(decision=Decision.ALLOW, stage=Stage.BYPASS, rule=word, reason=reason, parts=parts)
    if decisive.decision is Decision.ASK and posture.finite:
        reason = f"nobody can be asked: {decisive.reason}"
        return Verdict(decision=Decision.DENY, stage=Stage.NOBODY, rule=decisive.rule, reason=reason, parts=parts)
    return _verdict(decisive, parts)


def _verdict(part: Part, parts: tuple[Part, ...]) -> Verdict:
    return Verdict(decision=part.decision, stage=part.stage, rule=part.rule, reason=part.reason, parts=parts)
