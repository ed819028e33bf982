"""The step before every model call: terms of a new task, answers to whatever was left unanswered, limits, compaction."""

from __future__ import annotations

import os
from typing import Any, Literal, cast

from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime

from nodes.answering import Answering
from nodes.calls import repaired, unanswered
from nodes.context import AgentContext
from nodes.events import Events
from nodes.limits import NOTHING_SPENT, charged, reached, warned
from nodes.models.context import is_summary
from nodes.state import Admitted, AgentState, Spent

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
            return update | {"messages": repaired(messages, {}, LEFT_OPEN)}
        after = cast("AgentState", {**state, **update})
        if within_limits(after) == "__end__":
            return update
        return update | await self._compacted(after, state.get("spent", NOTHING_SPENT), context, runtime)

    async def _compacted(
        self, state: AgentState, before: Spent, context: AgentContext, runtime: Runtime[AgentContext]
    ) -> dict[str, Any]:
        """The update that shortens the conversation, charged to the task; empty while it fits."""
        emit = self._events.emitter(runtime)
        done = await self._answering.compact(
            state["messages"],
            context.model_copy(update={"model": state["admitted"]["model"]}),
            emit,
            known=before["context_tokens"],
            estimated=before["context_estimated"],
            pinned=state.get("pinned", ""),
            deadline=self._events.deadline(),
        )
        if done is None:
            return {}
        spent = warned(charged(state["spent"], done.usage, done.cost), context, emit)
        if not done.messages:
            return {"spent": spent}
        messages = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *done.messages]
        return {"messages": messages, "spent": {**spent, "context_tokens": 0}}


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
