"""The approval step: puts a reply's gated calls to a person and sends every call of the reply on its way."""

from __future__ import annotations

from typing import Any, Literal

from langgraph.types import Command

from checkpoints.errors import CheckreinError
from nodes.approval import Question, ask, value_of
from nodes.calls import Call, asked, last_reply
from nodes.display import describe
from nodes.gate import Gate
from nodes.state import Admitted, AgentState
from nodes.tools.files import planners


async def questions_about(gate: Gate, state: AgentState) -> list[Question]:
    """The questions that the newest reply raises, empty when it raises none. Reads the workspace for diffs, changes nothing."""
    reply = last_reply(state["messages"])
    if reply is None:
        return []
    admitted = state["admitted"]
    return [
        Question(call=call, description=await _description(call, reason, admitted), reason=reason)
        for call, reason in await gate.asks(asked(reply, gate.catalog), admitted)
    ]


async def _description(call: Call, reason: str, admitted: Admitted) -> str:
    """What a person reads: the call as it will run, escaped, with the diff of a file's change, and where and why."""
    shown = describe(call.tool.name, call.arguments.model_dump(mode="json"), diff=await _diff(call, admitted["workspace"]))
    warnings = [f"warning: {warning}" for warning in shown.warnings]
    return "\n".join([shown.text, *warnings, f"workspace: {admitted['workspace']}", f"asked because: {reason}"])


async def _diff(call: Call, workspace: str) -> str | None:
    """The change that a call would make to a file; None when it makes none or would be refused, which it says itself."""
    plan = planners().get(call.tool.name)
    if plan is None:
        return None
    try:
        return (await plan(call.arguments, workspace)).diff
    except CheckreinError:
        return None


class Approval:
    """The node. Nothing with an effect happens before the interrupt, since a resume runs the node again from its top."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, state: AgentState) -> Command[Literal["tool", "native"]]:
        """Asks, and dispatches as decided; calls that need no person go along with the others."""
        admitted = state["admitted"]
        questions = await questions_about(self._gate, state)
        decisions = ask(value_of(questions), self._gate.edit_fits)
        by_call = {question.call.call_id: decision for question, decision in zip(questions, decisions, strict=True)}
        reply = last_reply(state["messages"])
        calls = asked(reply, self._gate.catalog) if reply else []
        goto: Any = self._gate.tasks(calls, admitted, by_call)
        return Command(goto=goto)
