"""The approval step: puts a reply's gated calls to a person and sends every call of the reply on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from langgraph.types import Command

from nodes.approval import Question, ask, value_of
from nodes.calls import Call, asked, last_reply
from nodes.display import describe
from nodes.gate import Gate
from nodes.state import Admitted, AgentState


async def questions_about(gate: Gate, state: AgentState) -> list[Question]:
    """The questions that the newest reply raises, empty when it raises none. Reads the workspace for diffs, changes nothing."""
    reply = last_reply(state["messages"])
    if reply is None:
        return []
    admitted = state["admitted"]
    return [
        Question(call=call, description=await _description(call, reason, admitted), reason=reason)
        for call, reason in gate.asks(asked(reply, gate.catalog), admitted)
    ]


async def _description(call: Call, reason: str, admitted: Admitted) -> str:
    preview = await call.tool.preview(call.arguments, admitted["workspace"]) if call.tool.preview else ""
    lines: Sequence[str] = describe(call.tool.name, call.arguments.model_dump(mode="json"), preview)
    return "\n".join([*lines, f"workspace: {admitted['workspace']}", f"asked because: {reason}"])


class Approval:
    """The node. Nothing with an effect happens before the interrupt, since a resume runs the node again from its top."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, state: AgentState) -> Command[Literal["tool", "native"]]:
        """Asks, and dispatches as decided; calls that need no person go along with the others."""
        admitted = state["admitted"]
        questions = await questions_about(self._gate, state)
        decisions = ask(value_of(questions), self._gate.edits(admitted))
        by_call = {question.call.call_id: decision for question, decision in zip(questions, decisions, strict=True)}
        reply = last_reply(state["messages"])
        calls = asked(reply, self._gate.catalog) if reply else []
        goto: Any = self._gate.tasks(calls, admitted, by_call)
        return Command(goto=goto)
