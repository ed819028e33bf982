"""Turns a scripted reply into the bytes of the chat-completions wire, and says what a strict provider refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodes.models.script import ScriptedCall, ScriptedReply, ScriptedUsage

_WORDS = re.compile(r"\S+\s*|\s+")


def stream_events(reply: ScriptedReply, *, number: int, body: Mapping[str, Any]) -> list[bytes]:
    """The server-sent events of a streamed answer, one item a chunk.

    The shape is the one that OpenAI documents: the first chunk of a call has index, id, type, name and a first piece
    of the arguments, later ones only index and a piece; then a chunk with the finish reason, usage when the request
    asked for it, and `[DONE]`.

    Args:
        reply: What to say.
        number: The request's number, from which ids are made.
        body: The request.
    """
    if reply.raw is not None:
        return [piece.encode("utf-8", "surrogateescape") for piece in reply.raw]
    deltas = list(_deltas(reply, number))
    if deltas:
        deltas[0] = {"role": "assistant", **deltas[0]}
    frame = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
    chunks = [{**frame, "choices": [_choice(delta, None)]} for delta in deltas]
    finish = finish_reason(reply)
    if finish:
        chunks.append({**frame, "choices": [_choice({}, finish)]})
    if reply.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**frame, "choices": [], "usage": usage_body(reply.usage)})
    events = [b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n" for chunk in chunks]
    return [*events, b"data: [DONE]\n\n"] if reply.done else events


def whole_answer(reply: ScriptedReply, *, number: int, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request that did not ask for a stream."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call_id(call, number, place),
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(argument_pieces(call))},
            }
            for place, call in enumerate(reply.calls)
        ]
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(reply) or None}],
    }
    if reply.usage is not None:
        answer["usage"] = usage_body(reply.usage)
    return answer


def finish_reason(reply: ScriptedReply) -> str:
    """The finish reason that goes on the wire; empty means none."""
    if reply.finish_reason is not None:
        return reply.finish_reason
    return "tool_calls" if reply.calls else "stop"


def call_id(call: ScriptedCall, number: int, place: int) -> str:
    """The id of a call: the script's own, or one made from the request's number."""
    return f"call_{number}_{place}" if call.id is None else call.id


def argument_pieces(call: ScriptedCall) -> Sequence[str]:
    """The argument text as it is cut for the wire: the script's own pieces, or three of about the same length."""
    if call.fragments is not None:
        return call.fragments
    text = json.dumps(call.arguments, ensure_ascii=False)
    third = max(1, -(-len(text) // 3))
    return [text[start : start + third] for start in range(0, len(text), third)]


def usage_body(usage: ScriptedUsage) -> dict[str, Any]:
    """Token counts in the provider's own words."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
    if usage.cached is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached}
    if usage.reasoning is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return body


def history_fault(messages: Sequence[Any]) -> str | None:
    """Why a strict provider answers 400 to this history, or None when it accepts it.

    Refused: a call that is not answered directly after its message, a result without its call, an id used twice,
    arguments that are not a string of JSON.
    """
    seen: set[str] = set()
    open_ids: list[str] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in open_ids:
                return f"messages[{place}] answers {message.get('tool_call_id')!r}, which is not an open tool call"
            open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            return f"tool calls {open_ids} have no result directly after their message"
        for call in message.get("tool_calls") or ():
            if call.get("id") in seen or not call.get("id"):
                return f"messages[{place}] has the tool call id {call.get('id')!r}, which is empty or used before"
            if not _is_json(call["function"].get("arguments")):
                return f"messages[{place}] has a tool call whose arguments are not JSON"
            seen.add(call["id"])
            open_ids.append(call["id"])
    return f"tool calls {open_ids} have no result directly after their message" if open_ids else None


def _is_json(text: object) -> bool:
    try:
        json.loads(text if isinstance(text, str) else "")
    except ValueError:
        return False
    return True


def _deltas(reply: ScriptedReply, number: int) -> Iterator[dict[str, Any]]:
    text = reply.text or ""
    size = reply.piece
    pieces = _WORDS.findall(text) if size is None else [text[at : at + size] for at in range(0, len(text), size)]
    yield from ({"content": piece} for piece in pieces)
    for place, call in enumerate(reply.calls):
        first, *rest = argument_pieces(call) or ("",)
        function = {"name": call.name, "arguments": first}
        yield {"tool_calls": [{"index": place, "id": call_id(call, number, place), "type": "function", "function": function}]}
        yield from ({"tool_calls": [{"index": place, "function": {"arguments": piece}}]} for piece in rest)


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}
