"""What several tests of the store need: grants, runs, a small graph."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from checkpoints.ledger import Ledger
from checkpoints.messages import MessagesChannel
from checkpoints.records import GrantUse, NewRun, Run


def fresh() -> str:
    return str(uuid.uuid4())


def grant(fence: int = 0, checkpoint: str = "", request_id: str = "") -> GrantUse:
    return GrantUse(
        request_id=request_id or fresh(),
        expires_at=datetime.now(UTC) + timedelta(minutes=1),
        expected_fence=fence,
        expected_checkpoint_id=checkpoint,
    )


def new_run(thread_id: str, owner_id: str = "nobody", **fields: Any) -> NewRun:
    return NewRun(run_id=fields.pop("run_id", fresh()), thread_id=thread_id, owner_id=owner_id, **fields)


async def start(ledger: Ledger, thread_id: str, owner_id: str = "nobody", **fields: Any) -> Run:
    """Admits a run on a thread as it is now."""
    info = await ledger.thread(thread_id)
    now = grant(info.fence, info.checkpoint_id) if info else grant()
    return await ledger.admit(new_run(thread_id, owner_id, **fields), now)


class Conversation(TypedDict):
    messages: Annotated[list[AnyMessage], MessagesChannel()]
    turns: int


def conversation(turns: int, result: str = "r" * 100) -> StateGraph[Conversation]:
    """A graph that makes so many turns of a model reply with one call and its result."""

    async def model(state: Conversation) -> dict[str, Any]:
        number = state.get("turns", 0) + 1
        call = {"name": "execute", "args": {"command": f"step {number}"}, "id": f"call-{number}", "type": "tool_call"}
        return {"messages": [AIMessage(f"turn {number}", tool_calls=[call])], "turns": number}

    async def tool(state: Conversation) -> dict[str, Any]:
        return {"messages": [ToolMessage(result, tool_call_id=f"call-{state['turns']}")]}

    async def route(state: Conversation) -> str:
        return END if state["turns"] % turns == 0 else "model"

    graph = StateGraph(Conversation)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tool")
    graph.add_conditional_edges("tool", route, ["model", END])
    return graph


def pausing() -> StateGraph[Conversation]:
    """A graph that makes fifty turns and then pauses inside a subgraph."""

    async def ask(state: Conversation) -> Any:
        return {"messages": [HumanMessage(interrupt({"question": 1}), id="answer")]}

    child = StateGraph(Conversation)
    child.add_node("ask", ask)
    child.add_edge(START, "ask")
    graph = conversation(50)
    graph.add_node("pause", child.compile())
    graph.branches.clear()

    async def route(state: Conversation) -> str:
        return "pause" if state["turns"] % 50 == 0 else "model"

    graph.add_conditional_edges("tool", route, ["model", "pause"])
    return graph
