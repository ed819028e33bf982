"""The step before every model call: terms of a new task, answers to whatever was left unanswered, limits."""

from __future__ import annotations

import os
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime

from nodes.calls import repaired, unanswered
from nodes.context import AgentContext
from nodes.state import Admitted, AgentState, Spent

LEFT_OPEN = (
    "This call was left without a result: the run that asked for it was interrupted. Whether it had any effect is not known "
    "here. Look before doing it again."
)
"""The answer that stands in for a result that nobody recorded. A run that ends in order writes a better one itself."""

LimitsRoute = Literal["model", "__end__"]


async def prepare(state: AgentState, runtime: Runtime[AgentContext]) -> dict[str, Any]:
    """Makes the state fit for a model call.

    A message from a person as the newest one starts a task: its terms are taken from the context, once, and its spending
    starts at zero. On any other entry, after tools and after an approval above all, the stored terms hold and the context's
    are not looked at, so a resume can never be talked into another review mode.
    """
    context = runtime.context or AgentContext()
    messages = state["messages"]
    update: dict[str, Any] = {}
    if unanswered(messages):
        update["messages"] = repaired(messages, {}, LEFT_OPEN)
    if "admitted" not in state or _starts_task(messages):
        update["admitted"] = terms(context)
        update["spent"] = Spent(turns=0, tool_calls=0)
        update["exit_reason"] = ""
    elif reached := _limit_reached(state["spent"], context):
        update["exit_reason"] = reached
    return update


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
    return bool(messages) and isinstance(messages[-1], HumanMessage)


def _limit_reached(spent: Spent, context: AgentContext) -> str:
    if spent["turns"] >= context.max_turns:
        return f"max_iterations_reached({spent['turns']}/{context.max_turns})"
    return ""


def within_limits(state: AgentState) -> LimitsRoute:
    """Where to go from `prepare`: to the model, or to the end when a limit is reached."""
    return "__end__" if state.get("exit_reason") else "model"
