"""Rules that a person wrote or granted, and how they are matched with what a call would do."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodes.policy.verdict import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. Everything that it names must match; a rule that names only a tool speaks of the tool's every call.

    Attributes:
        decision: What it says.
        tool: Name of the tool, with `*` and `?`.
        command: Words of a shell command in normal form, each with `*` and `?`; the command may go on after them. None: any.
        path: Path relative to the workspace, with `*`, `?` and `**`. Speaks of file tools and of the shell's
            redirections. None: any.
        exact: The command must end where `command` does, and its words are taken as plain text.
        reason: What the person wants to be told when it speaks.
        source: Where it comes from: file and line, or the grant's id.
    """

    decision: Decision
    tool: str = "*"
    command: tuple[str, ...] | None = None
    path: str | None = None
    exact: bool = False
    reason: str = ""
    source: str = ""

    def matches_call(self, tool: str) -> bool:
        """Whether it speaks of every call of this tool."""
        return self.command is None and self.path is None and fnmatch.fnmatchcase(tool, self.tool)

    def matches_command(self, tool: str, words: Sequence[str]) -> bool:
        """Whether it speaks of a simple command, given in normal form."""
        if self.command is None or not fnmatch.fnmatchcase(tool, self.tool):
            return False
        if self.exact:
            return self.command == tuple(words)
        pattern = self.command[:-1] if self.command[-1:] == ("*",) else self.command
        if len(words) < len(pattern):
            return False
        return all(fnmatch.fnmatchcase(word, part) for word, part in zip(words, pattern, strict=False))

    def matches_path(self, tool: str, path: str) -> bool:
        """Whether it speaks of a file, given relative to the workspace (absolute when it lies outside)."""
        if self.path is None or not fnmatch.fnmatchcase(tool, self.tool):
            return False
        return path == self.path if self.exact else path_matches(path, self.path)

    def describe(self) -> str:
        """The rule in one line, for people and for the verdict."""
        what = f" command {shlex.join(self.command)!r}" if self.command is not None else ""
        where = f" path {self.path!r}" if self.path is not None else ""
        return f"{self.decision.value} {self.tool}{what}{where}{f' ({self.source})' if self.source else ''}"


def path_matches(path: str, pattern: str) -> bool:
    """Shell pattern by components: `*` stays inside one, `**` spans any number; one ending with `/` means all below it."""
    if pattern.endswith("/"):
        pattern += "**"
    return _components_match(path.split("/"), pattern.split("/"))


def _components_match(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Matches by dynamic programming, so that many `**` cost no more than their product."""
    reached = {0}
    for pattern in patterns:
        if pattern == "**":
            reached = set(range(min(reached, default=len(names) + 1), len(names) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(names) and fnmatch.fnmatchcase(names[at], pattern)}
    return len(names) in reached


def strictest(rules: Iterable[Rule]) -> Rule | None:
    """The rule that counts among those that match: deny before ask before allow, the first of its kind."""
    order = {Decision.DENY: 0, Decision.ASK: 1, Decision.ALLOW: 2}
    return min(rules, key=lambda rule: order[rule.decision], default=None)
