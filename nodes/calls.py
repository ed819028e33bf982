"""A tool call between the model's message and its execution: validated, identified by a digest, answered exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, RemoveMessage, ToolMessage
from pydantic import ValidationError

from nodes.tools.tool import Arguments, Tool, ToolResult

MAX_SHOWN_ARGUMENTS = 2_000
"""Characters of raw or edited arguments that an answer to the model repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call that is fit to run: the tool exists and the arguments fit its schema.

    Attributes:
        call_id: The tool call's id.
        tool: The tool.
        arguments: The validated arguments, defaults included.
    """

    call_id: str
    tool: Tool
    arguments: Arguments

    @property
    def digest(self) -> str:
        """What an approval is bound to."""
        return digest(self.tool.name, self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitCall:
    """One call that cannot run: no such tool, or arguments that do not fit. Answered with an error that shows the schema."""

    call_id: str
    name: str
    reason: str


def digest(name: str, arguments: Arguments) -> str:
    """SHA-256 over the tool's name and its validated arguments, defaults included, as sorted JSON: 64 hex digits."""
    body = orjson.dumps([name, arguments.model_dump(mode="json")], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(body).hexdigest()


def check(catalog: Mapping[str, Tool], call_id: str, name: str, args: Mapping[str, Any]) -> Call | UnfitCall:
    """Validates one call against the catalogue."""
    tool = catalog.get(name)
    if tool is None:
        known = ", ".join(sorted(catalog)) or "none"
        return UnfitCall(call_id=call_id, name=name, reason=f"There is no tool {name!r}. The tools are: {known}.")
    try:
        arguments = tool.arguments.model_validate(dict(args))
    except ValidationError as error:
        return UnfitCall(call_id=call_id, name=name, reason=_unfit(tool, error))
    return Call(call_id=call_id, tool=tool, arguments=arguments)


def _unfit(tool: Tool, error: ValidationError) -> str:
    faults = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}" for fault in error.errors()[:10]
    )
    schema = orjson.dumps(tool.arguments.model_json_schema()).decode()
    return f"The arguments do not fit {tool.name}: {faults}. Nothing ran. The schema is {schema}"


def asked(message: AIMessage, catalog: Mapping[str, Tool]) -> list[Call | UnfitCall]:
    """Every call of one model reply in its order; what could not be parsed comes last, as unfit."""
    calls: list[Call | UnfitCall] = [
        check(catalog, call["id"] or "", call["name"], call["args"]) for call in message.tool_calls
    ]
    for broken in message.invalid_tool_calls:
        raw = (broken["args"] or "")[:MAX_SHOWN_ARGUMENTS]
        name = broken["name"] or ""
        tool = catalog.get(name)
        schema = f" The schema is {orjson.dumps(tool.arguments.model_json_schema()).decode()}" if tool else ""
        reason = f"The arguments of {name or 'this call'} are not a JSON object: {raw!r}. Nothing ran.{schema}"
        calls.append(UnfitCall(call_id=broken["id"] or "", name=name, reason=reason))
    return calls


def last_reply(messages: Sequence[AnyMessage]) -> AIMessage | None:
    """The model reply that the newest messages answer, or None before the first one."""
    return next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)


def answer(call_id: str, name: str, result: ToolResult) -> ToolMessage:
    """The one message that answers a call. Its id is derived from the call's, so that writing it twice is writing it once."""
    return ToolMessage(
        content=result.content,
        tool_call_id=call_id,
        name=name,
        id=f"answer-{call_id}",
        status="error" if result.is_error else "success",
    )


def unanswered(messages: Sequence[AnyMessage]) -> dict[str, str]:
    """Ids and tool names of all calls in the history that have no answer, oldest first."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    return {
        call_id: name
        for message in messages
        if isinstance(message, AIMessage)
        for call_id, name in _ids(message)
        if call_id not in answered
    }


def _ids(message: AIMessage) -> Iterable[tuple[str, str]]:
    for call in message.tool_calls:
        yield call["id"] or "", call["name"]
    for broken in message.invalid_tool_calls:
        yield broken["id"] or "", broken["name"] or ""


def repaired(messages: Sequence[AnyMessage], reasons: Mapping[str, str], default: str) -> list[BaseMessage]:
    """The update that answers every unanswered call, each answer right behind the reply that asked.

    Providers refuse a history in which anything stands between a call and its result, so what follows an unanswered
    reply is taken out and put back behind the answers.

    Args:
        messages: The whole history.
        reasons: Text of the answer by call id.
        default: Text of the answer for all others.

    Returns:
        An empty list when nothing is missing.
    """
    missing = unanswered(messages)
    if not missing:
        return []
    first = next(
        index
        for index, message in enumerate(messages)
        if isinstance(message, AIMessage) and any(call_id in missing for call_id, _ in _ids(message))
    )
    tail = messages[first + 1 :]
    update: list[BaseMessage] = [RemoveMessage(id=message.id or "") for message in tail]
    update += _answered(messages[first], tail, missing, reasons, default)
    return update


def _answered(
    reply: AnyMessage, tail: Sequence[AnyMessage], missing: Mapping[str, str], reasons: Mapping[str, str], default: str
) -> list[AnyMessage]:
    given = {message.tool_call_id: message for message in tail if isinstance(message, ToolMessage)}
    rest = [message for message in tail if not isinstance(message, ToolMessage)]
    out: list[AnyMessage] = []
    for message in [reply, *rest]:
        if message is not reply:
            out.append(message)
        if isinstance(message, AIMessage):
            for call_id, name in _ids(message):
                content = reasons.get(call_id, default)
                out.append(given.get(call_id) or answer(call_id, name, ToolResult(content=content, is_error=True)))
    return out
