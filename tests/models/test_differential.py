"""The same message as stock ChatOpenAI gives, on every well-formed stream."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from nodes.models.chat_models import ChatModels
from nodes.models.script import Script
from nodes.models.scripted import ScriptedModel
from nodes.models.spec import ModelSpec
from tests.models.streams import WELL_FORMED
from tests.models.talk import raw

pytestmark = pytest.mark.anyio


def stock(server: ScriptedModel) -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url=server.base_url, api_key="x", streaming=True, stream_usage=True, max_retries=0)


def counts(message: AIMessage) -> dict[str, Any] | None:
    """Token counts without the details that nobody reported, which stock writes as nothing or as None."""
    usage = message.usage_metadata
    if usage is None:
        return None
    details = {key: value for part in ("input", "output") for key, value in (usage.get(f"{part}_token_details") or {}).items()}
    known = {key: value for key, value in details.items() if value is not None}
    return {"input": usage["input_tokens"], "output": usage["output_tokens"], "total": usage["total_tokens"], **known}


@pytest.mark.parametrize("name", WELL_FORMED)
async def test_every_well_formed_stream_gives_stock_chat_openais_message(name: str) -> None:
    reply = raw(WELL_FORMED[name], times=2)
    async with ScriptedModel(Script.of(reply)) as server, ChatModels({}) as models:
        theirs = await stock(server).ainvoke("hello")
        ours = await models.chat(ModelSpec(model="m", base_url=server.base_url)).ainvoke("hello")
    assert ours.content == theirs.content
    assert ours.tool_calls == theirs.tool_calls
    assert ours.invalid_tool_calls == theirs.invalid_tool_calls == []
    assert counts(ours) == counts(theirs)
    assert ours.response_metadata["finish_reason"] == theirs.response_metadata["finish_reason"]
    assert ours.response_metadata["model_name"] == theirs.response_metadata["model_name"]


@pytest.mark.parametrize("name", ["text", "text and call", "rich"])
async def test_streaming_through_langchain_gives_the_same_message_as_invoking(name: str) -> None:
    async with ScriptedModel(Script.of(raw(WELL_FORMED[name], times=2))) as server, ChatModels({}) as models:
        chat = models.chat(ModelSpec(model="m", base_url=server.base_url))
        whole = await chat.ainvoke("hello")
        chunks = [chunk async for chunk in chat.astream("hello")]
    merged = chunks[0]
    for chunk in chunks[1:]:
        merged += chunk
    assert len(chunks) > 1
    assert (merged.content, merged.tool_calls) == (whole.content, whole.tool_calls)
    assert counts(merged) == counts(whole)


async def test_the_request_is_what_stock_chat_openai_sends() -> None:
    """EVO-1: the payload is built by ChatOpenAI; only the way onto the wire differs."""
    history: list[BaseMessage] = [
        SystemMessage("Be brief."),
        HumanMessage(
            [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
        ),
        AIMessage("", tool_calls=[{"name": "find", "args": {"path": "é"}, "id": "a"}]),
        ToolMessage("found", tool_call_id="a"),
        AIMessage("Done 🦊"),
        HumanMessage("again"),
    ]
    tools = [{"type": "function", "function": {"name": "execute", "description": "d", "parameters": {"type": "object"}}}]
    async with ScriptedModel(Script.of(raw(WELL_FORMED["text"], times=2)), strict=True) as server, ChatModels({}) as models:
        await stock(server).bind_tools(tools).ainvoke(history)
        await models.chat(ModelSpec(model="m", base_url=server.base_url)).bind_tools(tools).ainvoke(history)
    theirs, ours = (request.body for request in server.requests)
    assert ours == theirs
    assert ours["stream"] is True
    assert ours["tools"][0]["function"]["name"] == "execute"
