"""The model step: one reply, streamed, with what it asked for counted against the task's limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from langgraph.runtime import Runtime
from langgraph.types import Send

from nodes.calls import UnfitCall, asked, last_reply
from nodes.context import AgentContext
from nodes.events import emitter
from nodes.gate import Gate, preset
from nodes.state import AgentState, Spent
from nodes.tools.tool import Emit, Tool

INSTRUCTIONS = """You are an agent that works in a person's workspace folder by calling tools.

Every call is checked, and calls with an effect may wait for a person, who can approve, change or reject them. A rejection is an
answer: do not reach the same end another way unless you are asked to. Keep commands short and to the point, look before you
change something, and say plainly what you did and what you could not do."""


class Answerer(Protocol):
    """Whatever gives one model reply: `nodes.answering`, on a real endpoint, in every test too."""

    async def __call__(
        self, messages: Sequence[AnyMessage], tools: Sequence[Tool], context: AgentContext, emit: Emit
    ) -> AIMessage:
        """Streams one reply and gives it whole. Cancellation closes the connection before it goes through."""


class Model:
    """The node."""

    def __init__(self, answer: Answerer, gate: Gate) -> None:
        self._answer = answer
        self._gate = gate
        self._tools = tuple(gate.catalog.values())

    async def __call__(self, state: AgentState, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        """Asks for the next reply."""
        context = (runtime.context or AgentContext()).model_copy(update={"model": state["admitted"]["model"]})
        emit = emitter(runtime)
        messages = [SystemMessage(instructions(context, state)), *state["messages"]]
        reply = await self._answer(messages, self._tools, context, emit)
        emit("model_reply", id=reply.id or "", tool_calls=len(reply.tool_calls) + len(reply.invalid_tool_calls))
        spent = state["spent"]
        calls = spent["tool_calls"] + len(reply.tool_calls) + len(reply.invalid_tool_calls)
        update = {"messages": [reply], "spent": Spent(turns=spent["turns"] + 1, tool_calls=calls)}
        over = calls > context.max_tool_calls
        return update | {"exit_reason": f"max_tool_calls_reached({calls}/{context.max_tool_calls})"} if over else update

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


def instructions(context: AgentContext, state: AgentState) -> str:
    """The system prompt: ours, the workspace, and what the caller adds."""
    parts = [INSTRUCTIONS, f"The workspace folder is {state['admitted']['workspace']}."]
    return "\n\n".join([*parts, context.instructions] if context.instructions else parts)


def _name(call: Any) -> str:
    return call.name if isinstance(call, UnfitCall) else str(call.tool.name)
