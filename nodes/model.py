"""The model step: one reply, streamed, with what it took counted against the task's limits."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages import AIMessage, SystemMessage
from langgraph.runtime import Runtime
from langgraph.types import Send

from nodes.answering import Answered, Answering
from nodes.calls import UnfitCall, asked, last_reply
from nodes.context import AgentContext
from nodes.events import Events
from nodes.gate import Gate, preset
from nodes.limits import charged, exceeded, warned
from nodes.state import AgentState, Spent
from nodes.tools.tool import Emit

INSTRUCTIONS = """You are an agent that works in a person's workspace folder by calling tools.

Every call is checked, and calls with an effect may wait for a person, who can approve, change or reject them. A rejection is an
answer: do not reach the same end another way unless you are asked to. Keep commands short and to the point, look before you
change something, and say plainly what you did and what you could not do."""


class Model:
    """The node."""

    def __init__(self, answering: Answering, gate: Gate, events: Events) -> None:
        self._answering = answering
        self._gate = gate
        self._events = events
        self._tools = tuple(gate.catalog.values())

    async def __call__(self, state: AgentState, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        """Asks for the next reply."""
        context = (runtime.context or AgentContext()).model_copy(update={"model": state["admitted"]["model"]})
        emit = self._events.emitter(runtime)
        messages = [SystemMessage(instructions(context, state)), *state["messages"]]
        answered = await self._answering.answer(
            messages, self._tools, context, emit, pinned=state.get("pinned", ""), deadline=self._events.deadline()
        )
        reply = answered.message
        emit("model_reply", id=reply.id or "", tool_calls=_calls_in(reply))
        spent = counted(state["spent"], answered, context, emit)
        if spent["turns"] == 1:
            for note in await self._gate.judge.notes(state["admitted"]):
                emit("policy_note", text=note)
        update: dict[str, Any] = {"messages": [reply], "spent": spent, "pinned": answered.model}
        over = exceeded(spent, context)
        return update | {"exit_reason": over} if over else update

    async def route(self, state: AgentState) -> Literal["approval", "tool", "native", "__end__"] | list[Send]:
        """Where a reply goes: to the end, to a person, or straight to execution.

        Looks at the state alone, so that it also routes what somebody else wrote into the state.
        """
        reply = last_reply(state["messages"])
        calls = asked(reply, self._gate.catalog) if reply else []
        if not calls:
            return "__end__"
        admitted = state["admitted"]
        if limit := state.get("exit_reason"):
            reason = f"The task is over ({limit}), so this call did not run."
            return [preset(call.call_id, _name(call), reason, admitted, is_error=True) for call in calls]
        if await self._gate.asks(calls, admitted):
            return "approval"
        return self._gate.tasks(calls, admitted, {})


def counted(spent: Spent, answered: Answered, context: AgentContext, emit: Emit) -> Spent:
    """The spending after a reply. Warns of limits that come near, once each."""
    turns, calls = spent["turns"] + 1, spent["tool_calls"] + _calls_in(answered.message)
    taken = charged(spent, answered.usage, answered.cost)
    return warned(
        {
            **taken,
            "turns": turns,
            "tool_calls": calls,
            "context_tokens": answered.context,
            "context_estimated": answered.estimated,
        },
        context,
        emit,
    )


def instructions(context: AgentContext, state: AgentState) -> str:
    """The system prompt: ours, the workspace, and what the caller adds."""
    parts = [INSTRUCTIONS, f"The workspace folder is {state['admitted']['workspace']}."]
    return "\n\n".join([*parts, context.instructions] if context.instructions else parts)


def _calls_in(reply: AIMessage) -> int:
    return len(reply.tool_calls) + len(reply.invalid_tool_calls)


def _name(call: Any) -> str:
    return call.name if isinstance(call, UnfitCall) else str(call.tool.name)
