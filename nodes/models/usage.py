"""What a call, a run or a tree of runs used, in tokens. Unknown is not zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

CHARACTERS_PER_TOKEN = 4
"""The rule of thumb of OpenAI's own documentation for English text; used only where nothing better is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts. None means that nobody said.

    Attributes:
        input: Tokens of the request, cached ones included.
        output: Tokens of the answer, reasoning included.
        cached: The part of `input` that was read from the provider's cache.
        reasoning: The part of `output` that the model spent on thinking.
        estimated: True when any number in here was estimated instead of reported.
    """

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    estimated: bool = False

    @property
    def total(self) -> int | None:
        """Input and output together; None when either is unknown."""
        return None if self.input is None or self.output is None else self.input + self.output

    def __add__(self, other: Self) -> Self:
        """Both together. A count that one side does not know is the other side's: an unknown part adds nothing known."""
        sums = {name: _sum(getattr(self, name), getattr(other, name)) for name in _COUNTS}
        return type(self)(**sums, estimated=self.estimated or other.estimated)

    def __sub__(self, earlier: Self) -> Self:
        """The change since an earlier reading of the same running counters; what was unknown then counts from zero."""
        changes = {name: _difference(getattr(self, name), getattr(earlier, name)) for name in _COUNTS}
        return type(self)(**changes, estimated=self.estimated)

    def record(self) -> dict[str, Any]:
        """The known counts as plain JSON; unknown ones are left out."""
        counts = {f"{name}_tokens": getattr(self, name) for name in _COUNTS}
        counts["total_tokens"] = self.total
        known = {name: value for name, value in counts.items() if value is not None}
        return {**known, "estimated": True} if self.estimated else known

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads `record()` back."""
        counts = {name: _count(record.get(f"{name}_tokens")) for name in _COUNTS}
        return cls(**counts, estimated=record.get("estimated") is True)


_COUNTS = tuple(item.name for item in fields(Usage) if item.name != "estimated")
UNKNOWN = Usage()


def reported_usage(body: object) -> Usage | None:
    """The counts of a chat-completions `usage` object, or None when it says nothing that can be used."""
    if not isinstance(body, Mapping):
        return None
    inputs = body.get("prompt_tokens_details")
    outputs = body.get("completion_tokens_details")
    usage = Usage(
        input=_count(body.get("prompt_tokens")),
        output=_count(body.get("completion_tokens")),
        cached=_count(inputs.get("cached_tokens")) if isinstance(inputs, Mapping) else None,
        reasoning=_count(outputs.get("reasoning_tokens")) if isinstance(outputs, Mapping) else None,
    )
    return None if usage == UNKNOWN else usage


def estimated_usage(*, input_characters: int, output_characters: int) -> Usage:
    """A guess for an attempt whose counts never arrived, flagged as one."""
    return Usage(
        input=-(-input_characters // CHARACTERS_PER_TOKEN),
        output=-(-output_characters // CHARACTERS_PER_TOKEN),
        estimated=True,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None else now - (before or 0)
