"""Writes request bodies in time that hardly grows with the conversation: each message is turned into bytes once."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from nodes.models.arguments import is_complete_object
from nodes.models.history import call_ids, sound
from nodes.models.text import whole_text

Convert = Callable[[BaseMessage], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Fragment:
    """One message as bytes, with what the pairing check needs.

    Attributes:
        message: The message, held weakly: the cache keeps nothing alive.
        content: Its content when it was written; messages are values, and a replaced content is noticed by identity.
        calls: Its calls when it was written, for the same reason.
        data: Its JSON; empty for a message that says nothing and is not sent.
        ids: Ids of its calls.
        answers: The call that it answers, or None.
    """

    message: weakref.ref[BaseMessage]
    content: object
    calls: object
    data: bytes
    ids: tuple[str, ...]
    answers: str | None


@dataclass(frozen=True, slots=True)
class Body:
    """A request body.

    Attributes:
        data: The JSON.
        ids: Every tool call id in it.
    """

    data: bytes
    ids: frozenset[str]


class RequestWriter:
    """Writes bodies for one model and remembers the bytes of messages that still exist.

    Args:
        convert: Turns one message into its dictionary on the wire.
    """

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._fragments: dict[int, _Fragment] = {}

    def __len__(self) -> int:
        """Messages whose bytes are remembered."""
        return len(self._fragments)

    def body(self, head: Mapping[str, Any], messages: Sequence[BaseMessage]) -> Body:
        """The body for a conversation.

        Args:
            head: Every field but `messages`.
            messages: The conversation, sound or not.

        Raises:
            TypeError: A message or a field cannot be written as JSON.
            ValueError: A content block cannot be sent on this wire.
        """
        fragments = [self._fragment(message) for message in messages]
        if not _is_sound(fragments):
            fragments = [self._fragment(message) for message in sound(messages)]
        parts = b",".join([fragment.data for fragment in fragments if fragment.data])
        start = to_json({name: value for name, value in head.items() if name != "messages"})
        comma = b"," if len(start) > len(b"{}") else b""
        ids = frozenset(call_id for fragment in fragments for call_id in fragment.ids)
        return Body(data=start[:-1] + comma + b'"messages":[' + parts + b"]}", ids=ids)

    def _fragment(self, message: BaseMessage) -> _Fragment:
        known = self._fragments.get(id(message))
        if (
            known is not None
            and known.message() is message
            and known.content is message.__dict__["content"]
            and known.calls is message.__dict__.get("tool_calls")
        ):
            return known
        return self._write(message)

    def _write(self, message: BaseMessage) -> _Fragment:
        key = id(message)
        fragment = _Fragment(
            message=weakref.ref(message, lambda _: self._fragments.pop(key, None)),
            content=message.content,
            calls=message.__dict__.get("tool_calls"),
            data=b"" if _says_nothing(message) else to_json(_without_broken_arguments(self._convert(message))),
            ids=call_ids(message),
            answers=message.tool_call_id if isinstance(message, ToolMessage) else None,
        )
        self._fragments[key] = fragment
        return fragment


def to_json(value: Any) -> bytes:
    """JSON bytes; half characters become replacement marks, for they cannot be encoded.

    Raises:
        TypeError: The value holds something that is not JSON.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return whole_text(json.dumps(value, ensure_ascii=False, allow_nan=False)).encode()


def _is_sound(fragments: Sequence[_Fragment]) -> bool:
    used: set[str] = set()
    waiting: set[str] = set()
    for fragment in fragments:
        if fragment.answers is not None:
            if fragment.answers not in waiting:
                return False
            waiting.remove(fragment.answers)
            continue
        if waiting:
            return False
        for call_id in fragment.ids:
            if not call_id or call_id in used:
                return False
            used.add(call_id)
            waiting.add(call_id)
    return not waiting


def _says_nothing(message: BaseMessage) -> bool:
    """An assistant message without text and calls: strict providers refuse it, and it has nothing to tell."""
    return isinstance(message, AIMessage) and not message.content and not call_ids(message) and not message.additional_kwargs


def _without_broken_arguments(message: dict[str, Any]) -> dict[str, Any]:
    """Empties argument texts that are not JSON objects: several servers answer 400 or 500 to them for ever after.

    What the model wrote is kept in the stored message, and the call's error result quotes it.
    """
    calls = message.get("tool_calls")
    return message if not calls else {**message, "tool_calls": [_with_an_object(call) for call in calls]}


def _with_an_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if function is None or is_complete_object(function.get("arguments") or ""):
        return call
    return {**call, "function": {**function, "arguments": "{}"}}
