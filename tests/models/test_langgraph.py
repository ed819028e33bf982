"""What LangGraph and LangChain see of a reply: live tokens, the whole message, one id."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from checkpoints.errors import UsageError
from nodes.models.reply import reply
from nodes.models.script import ScriptedCall, ScriptedReply
from nodes.models.spec import ModelChain
from tests.models.talk import TOOLS, Talk, talking

pytestmark = pytest.mark.anyio


def graph(talk: Talk) -> Any:
    async def model(state: MessagesState) -> dict[str, Any]:
        chain = ModelChain(models=tuple(talk.specs))
        answer = await reply(state["messages"], TOOLS, chain, ask=talk.models.ask, emit=talk.emit)
        return {"messages": [answer.message]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    return builder.compile()


async def test_tokens_reach_the_message_stream_and_ids_agree() -> None:
    """S60 at this level: the same id in the token stream and in the state."""
    answer = ScriptedReply(text="I will look now.", calls=(ScriptedCall(name="find", arguments={"path": "/tmp"}),))
    async with talking(answer) as talk:
        chunks: list[Any] = []
        final: dict[str, Any] = {}
        stream = graph(talk).astream({"messages": [HumanMessage("go")]}, stream_mode=["messages", "values"])
        async for mode, value in stream:
            if mode == "messages":
                chunks.append(value[0])
            else:
                final = value
    pieces = [item for item in chunks if isinstance(item, AIMessageChunk)]
    message = final["messages"][-1]
    assert isinstance(message, AIMessage)
    assert not isinstance(message, AIMessageChunk)
    assert "".join(str(item.content) for item in pieces) == message.content == "I will look now."
    assert len(pieces) > 2
    assert {item.id for item in pieces} == {message.id}
    assert pieces[-1].tool_calls == message.tool_calls


async def test_a_failed_attempt_puts_nothing_into_the_message_stream() -> None:
    async with talking(ScriptedReply(status=503), ScriptedReply(text="Good answer."), retries=1) as talk:
        stream = graph(talk).astream({"messages": [HumanMessage("go")]}, stream_mode="messages")
        chunks = [item async for item, _ in stream]
    assert "".join(str(item.content) for item in chunks) == "Good answer."


async def test_calling_without_awaiting_is_refused_with_what_to_do() -> None:
    async with talking() as talk:
        with pytest.raises(UsageError, match="asynchronous"):
            talk.models.chat(talk.specs[0]).invoke("hi")
