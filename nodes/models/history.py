"""Makes a stored conversation one that every provider accepts: ids unique, every call answered directly after its message.

Threads that were stored by other programs, or before an id rule existed, are not rewritten in the store: they are sent in a
sound form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

NO_RESULT = "This call did not run, or its result was not recorded."


def call_ids(message: BaseMessage) -> tuple[str, ...]:
    """Ids of a message's tool calls as they go on the wire: the usable ones, then the unusable."""
    if not isinstance(message, AIMessage):
        return ()
    return tuple(call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls))


def sound(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The conversation with unique ids and with each call's answer directly after it.

    A call without an answer gets one that says so; an answer without a call is left out; a repeated or empty id is replaced in
    the call and in its answer. Replacements depend on nothing but the messages before them, so that a provider's prompt cache
    still hits.
    """
    used: set[str] = set()
    taken: set[int] = set()
    result: list[BaseMessage] = []
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            continue
        old = call_ids(message)
        if not old:
            result.append(message)
            continue
        new = [_fresh(call_id, used) for call_id in old]
        result.append(message if tuple(new) == old else _renamed(message, new))
        for old_id, new_id in zip(old, new, strict=True):
            answer = _answer(messages, place, old_id, taken)
            result.append(_addressed(answer, new_id))
    return result


def _fresh(call_id: str, used: set[str]) -> str:
    candidate, turn = call_id, 1
    while not candidate or candidate in used:
        turn += 1
        candidate = f"{call_id or 'call'}~{turn}"
    used.add(candidate)
    return candidate


def _answer(messages: Sequence[BaseMessage], place: int, call_id: str, taken: set[int]) -> ToolMessage | None:
    """The first result for a call that nobody has taken; looked for up to the next message that uses the same id."""
    for later in range(place + 1, len(messages)):
        message = messages[later]
        if isinstance(message, ToolMessage) and later not in taken and message.tool_call_id == call_id:
            taken.add(later)
            return message
        if call_id in call_ids(message):
            return None
    return None


def _addressed(answer: ToolMessage | None, call_id: str) -> ToolMessage:
    if answer is None:
        return ToolMessage(content=NO_RESULT, tool_call_id=call_id, status="error")
    return answer if answer.tool_call_id == call_id else answer.model_copy(update={"tool_call_id": call_id})


def _renamed(message: BaseMessage, ids: Sequence[str]) -> BaseMessage:
    calls: list[Any] = list(getattr(message, "tool_calls", ()))
    unusable: list[Any] = list(getattr(message, "invalid_tool_calls", ()))
    renamed = [{**call, "id": new} for call, new in zip([*calls, *unusable], ids, strict=True)]
    return message.model_copy(update={"tool_calls": renamed[: len(calls)], "invalid_tool_calls": renamed[len(calls) :]})
