"""An answer as LangChain's messages and chunks, with the fields that stock ChatOpenAI fills."""

from __future__ import annotations

import json

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from nodes.models.answer import Answer
from nodes.models.usage import Usage


def to_message(answer: Answer, message_id: str | None) -> AIMessage:
    """The answer as LangChain's message, with the same fields as stock ChatOpenAI fills."""
    said = {"model_name": answer.model, "system_fingerprint": answer.fingerprint, "service_tier": answer.service_tier}
    metadata = {"model_provider": "openai", "finish_reason": answer.finish_reason}
    return AIMessage(
        content=answer.text,
        id=message_id,
        tool_calls=[tool_call(name=call.name, args=call.arguments, id=call.id) for call in answer.calls],
        invalid_tool_calls=[
            invalid_tool_call(name=call.name, args=call.raw, id=call.id, error=call.reason) for call in answer.unusable
        ],
        usage_metadata=None if answer.usage is None else usage_metadata(answer.usage),
        response_metadata=metadata | {name: value for name, value in said.items() if value},
    )


def usage_metadata(usage: Usage) -> UsageMetadata:
    """Token counts in LangChain's shape, which has no word for unknown: use `Usage` for accounting."""
    metadata = UsageMetadata(
        input_tokens=usage.input or 0, output_tokens=usage.output or 0, total_tokens=(usage.input or 0) + (usage.output or 0)
    )
    metadata["input_token_details"] = (
        InputTokenDetails() if usage.cached is None else InputTokenDetails(cache_read=usage.cached)
    )
    metadata["output_token_details"] = (
        OutputTokenDetails() if usage.reasoning is None else OutputTokenDetails(reasoning=usage.reasoning)
    )
    return metadata


def text_chunk(text: str, message_id: str | None) -> ChatGenerationChunk:
    """A piece of text as it is streamed."""
    return ChatGenerationChunk(message=AIMessageChunk(content=text, id=message_id))


def calls_chunk(message: AIMessage) -> ChatGenerationChunk:
    """What follows the text: whole calls, so that no reader of chunks ever holds half of one."""
    chunks = [
        tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=place)
        for place, call in enumerate(message.tool_calls)
    ]
    last = AIMessageChunk(
        content="",
        id=message.id,
        tool_call_chunks=chunks,
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        chunk_position="last",
    )
    return ChatGenerationChunk(message=last)
