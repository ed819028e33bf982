"""Regular expressions in time linear in the text, whatever the pattern: RE2 behind a typed face.

Python's own engine can take for ever on a hostile pattern, and holds the interpreter while it does. RE2 has no
look-around and no back-references for that reason.
"""

from __future__ import annotations

import re
from typing import Protocol, cast

import re2  # type: ignore[import-untyped]

from nodes.workspace.bounds import size
from nodes.workspace.errors import WorkspaceError

PATTERN_BYTES = 1000
_ENGINE_MEMORY = 16 * 1024 * 1024


class Match(Protocol):
    """Where a pattern was found."""

    def start(self) -> int:
        """Offset of its first byte."""


class Pattern(Protocol):
    """A compiled pattern over bytes."""

    def search(self, text: bytes) -> Match | None:
        """The first place where it matches."""


class PatternError(WorkspaceError):
    """The regular expression is not one that RE2 takes."""

    code = "pattern"
    hint = "Patterns use RE2 syntax: no look-around and no back-references; set literal=true to search for plain text."

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"The pattern cannot be used: {self.problem}"


def compiled(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> Pattern:
    """The pattern ready to search bytes.

    Raises:
        PatternError: It is no RE2 pattern, or longer than PATTERN_BYTES.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _ENGINE_MEMORY
    options.literal = literal
    options.case_sensitive = not ignore_case
    if size(pattern) > PATTERN_BYTES:
        raise PatternError(f"it is longer than {PATTERN_BYTES} bytes")
    try:
        return cast(Pattern, re2.compile(pattern.encode(), options))
    except UnicodeEncodeError as error:
        raise PatternError(error.reason) from error
    except re2.error as error:
        reason = error.args[0] if error.args else b"unknown"
        raise PatternError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from error


def shell_pattern(pattern: str) -> Pattern:
    """A shell pattern (`*` for any text, `?` for one character) that must match the whole text; empty matches everything."""
    body = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") if pattern else ".*"
    return compiled(f"(?s)^(?:{body})$")
