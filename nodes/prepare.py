"""The step before every model call: terms of a new task, answers to whatever was left unanswered, limits, compaction."""

from __future__ import annotations

import os
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime

from nodes.answering import Answering
from nodes.calls import repaired, unanswered
from nodes.context import AgentContext
from nodes.events import Events
from nodes.limits import NOTHING_SPENT, reached
from nodes.models.context import is_summary
from nodes.state import Admitted, AgentState

LEFT_OPEN = (
    "This call was left without a result: the run that asked for it was interrupted. Whether it had any effect is not known "
    "here. Look before doing it again."
)
"""The answer that stands in for a result that nobody recorded. A run that ends in order writes a better one itself."""

LimitsRoute = Literal["model", "__end__"]


class Prepare:
    """The node. Makes the state fit for a model call."""

    def __init__(self, answering: Answering, events: Events) -> None:
        self._answering = answering
        self._events = events

    async def __call__(self, state: AgentState, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        """Settles terms, answers, limits and length, in this order.

        A message from a person as the newest one starts a task: its terms are taken from the context, once, and its spending
        starts at zero. On any other entry, after tools and after an approval above all, the stored terms hold and the
        context's are not looked at, so a resume can never be talked into another review mode.
        """
        context = runtime.context or AgentContext()
        messages = state["messages"]
        if "admitted" not in state or _starts_task(messages):
            update: dict[str, Any] = {
                "admitted": terms(context),
                "spent": NOTHING_SPENT,
                "pinned": "",
                "exit_reason": "",
            }
        else:
            limit = reached(state["spent"], context)
            update = {"exit_reason": limit} if limit else {}
        if unanswered(messages):
            update["messages"] = repaired(messages, {}, LEFT_OPEN)
        elif not update.get("exit_reason"):
            update |= await self._compacted(state, context, runtime)
        return update

    async def _compacted(self, state: AgentState, context: AgentContext, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        spent = state.get("spent") or NOTHING_SPENT
        emit = self._events.emitter(runtime)
        shorter = await self._answering.compact(state["messages"], context, emit, known=spent["context_tokens"])
        if shorter is None:
            return {}
        messages, usage = shorter
        after = {**spent, "tokens": spent["tokens"] + (usage.total or 0), "context_tokens": 0}
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *messages], "spent": after}


def terms(context: AgentContext) -> Admitted:
    """The terms that a context asks for, with the places that it leaves open filled in."""
    workspace = os.path.abspath(context.workspace or os.curdir)  # noqa: PTH100 (a purely lexical step: no call blocks the loop)
    return Admitted(
        mode=context.review_mode,
        workspace=workspace,
        model=context.model,
        sandbox=context.sandbox,
        finite=context.finite,
        unattended=context.unattended,
        yolo=context.yolo,
    )


def _starts_task(messages: list[AnyMessage]) -> bool:
    """A person's message is the newest one. A summary stands for messages that were there before, and starts nothing."""
    newest = messages[-1] if messages else None
    return isinstance(newest, HumanMessage) and not is_summary(newest)


def within_limits(state: AgentState) -> LimitsRoute:
    """Where to go from `prepare`: to the model, or to the end when a limit is reached."""
    return "__end__" if state.get("exit_reason") else "model"
