"""Keeps a real conversation as a script: every attempt becomes a reply that a scripted model can play again.

A hook around the asking, not a proxy: it sees the assembled answer and the typed error, so that a recording holds what was
meant and no header at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from nodes.models.errors import DisconnectedError, ModelError, ModelTimeoutError, StatusError
from nodes.models.redact import Redactor
from nodes.models.reply import Ask
from nodes.models.script import Script, ScriptedCall, ScriptedReply, ScriptedUsage
from nodes.models.spec import ModelSpec
from nodes.models.wire import Watch

_BARE = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Recorder:
    """Wraps an `Ask` and remembers how each attempt ended. Give `recorder.ask` to `reply`, then `save`.

    Args:
        ask: Makes the real attempts.
        secrets: Values that must not be in the recording, besides what looks like a key.
    """

    def __init__(self, ask: Ask, *, secrets: Iterable[str] = ()) -> None:
        self._ask = ask
        self._redact = Redactor(secrets).text
        self._replies: list[ScriptedReply] = []

    @property
    def script(self) -> Script:
        """What was recorded so far."""
        return Script(replies=tuple(self._replies))

    def save(self, path: Path) -> None:
        """Writes the recording as a script file."""
        path.write_text(to_toml(self.script), encoding="utf-8")

    async def ask(
        self, spec: ModelSpec, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], watch: Watch
    ) -> AIMessage:
        """One attempt, recorded. A cancelled attempt is not: nobody knows what it would have said."""
        try:
            message = await self._ask(spec, messages, tools, watch)
        except ModelError as error:
            self._replies.append(self._fault(error))
            raise
        self._replies.append(self._reply(message))
        return message

    def _reply(self, message: AIMessage) -> ScriptedReply:
        calls = [
            ScriptedCall(name=call["name"], id=call["id"], fragments=(self._redact(json.dumps(call["args"])),))
            for call in message.tool_calls
        ]
        calls += [
            ScriptedCall(name=call["name"] or "", id=call["id"], fragments=(self._redact(call["args"] or ""),))
            for call in message.invalid_tool_calls
        ]
        text = self._redact(str(message.text))
        finish = str(message.response_metadata.get("finish_reason") or "stop")
        return ScriptedReply(text=text or None, calls=tuple(calls), usage=_usage(message), finish_reason=finish)

    def _fault(self, error: ModelError) -> ScriptedReply:
        if isinstance(error, StatusError) and error.status is not None:
            headers = {} if error.retry_after is None else {"Retry-After": self._redact(error.retry_after)}
            return ScriptedReply(status=error.status, headers=headers, body=self._redact(error.body))
        if isinstance(error, ModelTimeoutError):
            return ScriptedReply(hang=True)
        if isinstance(error, DisconnectedError):
            return ScriptedReply(text="", disconnect_after=0)
        return ScriptedReply(status=502, body=self._redact(str(error)))


def to_toml(script: Script) -> str:
    """A script as the text of a script file; `Script.load` reads it back to an equal script."""
    return "\n".join(_table("replies", reply.model_dump(exclude_defaults=True, exclude_none=True)) for reply in script.replies)


def _table(name: str, fields: Mapping[str, Any]) -> str:
    calls = fields.get("calls", ())
    lines = [f"[[{name}]]", *(f"{_key(key)} = {_value(value)}" for key, value in fields.items() if key != "calls")]
    nested = [_table(f"{name}.calls", call) for call in calls]
    return "\n".join([*lines, "", *nested])


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return repr(value)


def _key(key: str) -> str:
    return key if key and set(key) <= _BARE else _value(key)


def _usage(message: AIMessage) -> ScriptedUsage | None:
    counts = message.usage_metadata
    if counts is None:
        return None
    return ScriptedUsage(
        input=counts["input_tokens"],
        output=counts["output_tokens"],
        cached=counts.get("input_token_details", {}).get("cache_read"),
        reasoning=counts.get("output_token_details", {}).get("reasoning"),
    )
