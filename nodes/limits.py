"""The limits of a task: what counts against them, when a warning is due, and which one is reached."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from nodes.context import AgentContext
from nodes.models.usage import Usage
from nodes.state import Spent
from nodes.tools.tool import Emit

WARN_AT = Decimal("0.8")
"""Share of a limit at which a warning event is sent, once per limit and task."""

NOTHING_SPENT = Spent(turns=0, tool_calls=0, tokens=0, context_tokens=0, context_estimated=False, cost="", warned=[])

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


def charged(spent: Spent, usage: Usage, cost: Decimal | None) -> Spent:
    """The spending with tokens and US dollars added, as far as they are known."""
    tokens = spent["tokens"] + (usage.input or 0) + (usage.output or 0)
    dollars = spent["cost"] if cost is None else str(Decimal(spent["cost"] or 0) + cost)
    return {**spent, "tokens": tokens, "cost": dollars}


def warned(spent: Spent, context: AgentContext, emit: Emit) -> Spent:
    """The spending after a `limit_warning` for each limit that comes near and had none."""
    due = [reading for reading in readings(spent, context) if _is_due(reading, spent)]
    for word, used, limit in due:
        emit("limit_warning", limit=word, used=f"{used:f}", of=f"{limit:f}")
    return {**spent, "warned": [*spent["warned"], *(word for word, _, _ in due)]}


def said(word: str, used: Decimal, limit: Decimal) -> str:
    """A reached limit as the ending of a task names it."""
    return f"{word}_reached({used.normalize():f}/{limit.normalize():f})"


def _is_due(reading: Reading, spent: Spent) -> bool:
    word, used, limit = reading
    countable = limit > 1 or word == "max_cost"  # of a limit of one there is nothing to warn of before it is reached
    return countable and used >= limit * WARN_AT and word not in spent["warned"]
