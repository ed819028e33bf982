"""The approval step: puts a reply's gated calls to a person and sends every call of the reply on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from langgraph.types import Command

from nodes.approval import Question, ask_about
from nodes.calls import Call, UnfitCall, asked, last_reply
from nodes.confining import held_by
from nodes.display import describe, escape_line
from nodes.effects import change_digest, planned_change
from nodes.gate import Gate
from nodes.state import Admitted, AgentState


async def questions_about(gate: Gate, state: AgentState) -> list[Question]:
    """The questions that the newest reply raises, empty when it raises none. Reads the workspace for diffs, changes nothing."""
    reply = last_reply(state["messages"])
    if reply is None:
        return []
    admitted = state["admitted"]
    return [
        await _question(gate, call, reason, admitted) for call, reason in await gate.asks(asked(reply, gate.catalog), admitted)
    ]


async def _question(gate: Gate, call: Call, reason: str, admitted: Admitted) -> Question:
    """What a person reads: the call as it will run, escaped, with the diff of a file's change, where, under what, and why."""
    change = await planned_change(call, admitted["workspace"])
    arguments = call.arguments.model_dump(mode="json")
    shown = await asyncio.to_thread(describe, call.tool.name, arguments, diff=change.diff if change else None)
    warnings = [f"warning: {warning}" for warning in shown.warnings]
    held = [await asyncio.to_thread(held_by, gate.confine(admitted["workspace"]))] if call.tool.confined else []
    where = f"workspace: {escape_line(admitted['workspace'])}"
    description = "\n".join([shown.text, *warnings, where, *held, f"asked because: {escape_line(reason)}"])
    return Question(call=call, description=description, reason=reason, change=change_digest(change))


async def _unasked(calls: Sequence[Call | UnfitCall], questions: Sequence[Question], admitted: Admitted) -> list[Question]:
    """The calls of a reply that nobody is asked about, or not any more, for decisions that were given before."""
    asked_about = {question.call.call_id for question in questions}
    rest = [call for call in calls if isinstance(call, Call) and call.call_id not in asked_about]
    changes = [change_digest(await planned_change(call, admitted["workspace"])) for call in rest]
    return [Question(call=call, description="", reason="", change=seen) for call, seen in zip(rest, changes, strict=True)]


class Approval:
    """The node. Nothing with an effect happens before the interrupt, since a resume runs the node again from its top."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, state: AgentState) -> Command[Literal["tool", "native"]]:
        """Asks, and dispatches as decided; calls that need no person go along with the others."""
        admitted = state["admitted"]
        reply = last_reply(state["messages"])
        calls = asked(reply, self._gate.catalog) if reply else []
        questions = await questions_about(self._gate, state)
        others = await _unasked(calls, questions, admitted)
        by_call = ask_about(questions, others, self._gate.edit_fits)
        changes = {question.call.call_id: question.change for question in (*questions, *others)}
        goto: Any = self._gate.tasks(calls, admitted, by_call, changes)
        return Command(goto=goto)
