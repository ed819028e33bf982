"""The limits of a task: what counts against them, when a warning is due, and which one is reached."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from nodes.context import AgentContext
from nodes.state import Spent

WARN_AT = Decimal("0.8")
"""Share of a limit at which a warning event is sent, once per limit and task."""

NOTHING_SPENT = Spent(turns=0, tool_calls=0, tokens=0, context_tokens=0, cost="", warned=[])

Reading = tuple[str, Decimal, Decimal]
"""A limit's word, what was used of it, and the limit itself."""


def readings(spent: Spent, context: AgentContext) -> Iterator[Reading]:
    """Every limit that is set. A cost that nobody knows counts against nothing."""
    yield "max_iterations", Decimal(spent["turns"]), Decimal(context.max_turns)
    yield "max_tool_calls", Decimal(spent["tool_calls"]), Decimal(context.max_tool_calls)
    if context.max_tokens:
        yield "max_tokens", Decimal(spent["tokens"]), Decimal(context.max_tokens)
    if context.max_cost and spent["cost"]:
        yield "max_cost", Decimal(spent["cost"]), Decimal(str(context.max_cost))


def reached(spent: Spent, context: AgentContext) -> str:
    """The limit that ends the task before its next model call, as `max_iterations_reached(30/30)`; empty while none does."""
    for word, used, limit in readings(spent, context):
        if used >= limit and word != "max_tool_calls":
            return said(word, used, limit)
    return ""


def exceeded(spent: Spent, context: AgentContext) -> str:
    """The limit that a reply's own calls go beyond, so that they do not run; empty when they may."""
    for word, used, limit in readings(spent, context):
        if used > limit and word == "max_tool_calls":
            return said(word, used, limit)
    return ""


def due_warnings(spent: Spent, context: AgentContext) -> list[Reading]:
    """The limits of which 80 percent are used and nobody was warned."""
    return [reading for reading in readings(spent, context) if _is_due(reading, spent)]


def said(word: str, used: Decimal, limit: Decimal) -> str:
    """A reached limit as the ending of a task names it."""
    return f"{word}_reached({used.normalize():f}/{limit.normalize():f})"


def _is_due(reading: Reading, spent: Spent) -> bool:
    word, used, limit = reading
    return limit > 1 and used >= limit * WARN_AT and word not in spent["warned"]
