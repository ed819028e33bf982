"""Streams as providers send them: the corpus of the differential test, and pieces to build damaged ones from."""

from __future__ import annotations

import json
from typing import Any


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta if delta is not None else {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **fields}


def call(
    arguments: str | None = None, *, index: Any = 0, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    """One delta with one fragment of a tool call; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment: dict[str, Any] = {"index": index, "function": function}
    if call_id is not None:
        fragment |= {"id": call_id, "type": "function"}
    return {"tool_calls": [fragment]}


def event(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def stream(*deltas: dict[str, Any], finish: str | None = "tool_calls", done: bool = True) -> str:
    """A stream of deltas with its end."""
    chunks = [chunk(delta) for delta in deltas] + ([chunk(finish=finish)] if finish else [])
    return "".join(map(event, chunks)) + ("data: [DONE]\n\n" if done else "")


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**chunk(), "choices": [], "usage": {**counts, **details}}


def text(*pieces: str) -> list[dict[str, Any]]:
    return [{"content": piece} for piece in pieces]


EVO = stream(call('{"comm', call_id="b02", name="execute"), call('and":"b02-'), call('heartbeat"}'))
"""Three fragments that split inside a key and inside a value (EVO-2)."""

RICH = (
    event(chunk({"role": "assistant", "content": ""}))
    + ": keep-alive\n\n"
    + "".join(event(chunk(delta)) for delta in text("Grüße, ", "日本", "語 and 🦊", " done.\n"))
    + event(chunk(call('{"q": "na', index=0, call_id="a", name="find")))
    + event(chunk(call('{"command": "echo 🦊', index=1, call_id="b", name="execute")))
    + event(chunk(call('ïve"}', index=0)))
    + event(chunk(call(' && ls"}', index=1)))
    + event(chunk(finish="tool_calls"))
    + event(usage(12, 34, prompt_tokens_details={"cached_tokens": 5}))
    + "data: [DONE]\n\n"
)
"""Text beyond ASCII, a keep-alive, two interleaved calls and usage, all in one stream."""

WELL_FORMED: dict[str, str] = {
    "text": stream(*text("Hello", " world"), finish="stop"),
    "role first": stream({"role": "assistant", "content": ""}, *text("Hi"), finish="stop"),
    "text beyond ascii": stream(*text("日本", "🦊", "é"), finish="stop"),
    "white space": stream(*text(" ", "\n\n", "x  "), finish="stop"),
    "length": stream(*text("cut"), finish="length"),
    "three fragments": EVO,
    "whole call": stream(call('{"command": "ls"}', call_id="a", name="execute")),
    "arguments in single characters": stream(
        call("", call_id="a", name="execute"), *[call(character) for character in '{"command": "a b"}']
    ),
    "two calls in a row": stream(
        call('{"command": "a"}', index=0, call_id="a", name="execute"),
        call('{"command": "b"}', index=1, call_id="b", name="execute"),
    ),
    "two calls interleaved": stream(
        call('{"x":', index=0, call_id="a", name="find"),
        call('{"y":', index=1, call_id="b", name="find"),
        call("1}", index=0),
        call("2}", index=1),
    ),
    "text and call": stream(*text("I will look."), call('{"path": "/tmp"}', call_id="a", name="find")),
    "nested arguments": stream(call('{"a": {"b": [1, 2.5, true, null, "x"]}, "c": ""}', call_id="a", name="find")),
    "escapes in arguments": stream(call('{"command": "printf \\"a\\\\n\\" \\u00e9"}', call_id="a", name="execute")),
    "usage at the end": stream(*text("Hi"), finish="stop", done=False)
    + event(usage(3, 4, completion_tokens_details={"reasoning_tokens": 2}))
    + "data: [DONE]\n\n",
    "usage null until the end": event(chunk({"content": "Hi"}, usage=None))
    + event(chunk(finish="stop", usage=None))
    + event(usage(3, 4))
    + "data: [DONE]\n\n",
    "usage with the finish reason": event(chunk({"content": "Hi"}))
    + event(chunk(finish="stop", usage=usage(5, 6)["usage"]))
    + "data: [DONE]\n\n",
    "empty choices first": event({**chunk(), "choices": [], "prompt_filter_results": []}) + stream(*text("Hi"), finish="stop"),
    "finish reason with the last piece": event(chunk({"content": "Hi"}))
    + event(chunk({"content": " you"}, finish="stop"))
    + "data: [DONE]\n\n",
    "many pieces": stream(*text(*[f"word{number} " for number in range(300)]), finish="stop"),
    "rich": RICH,
}
