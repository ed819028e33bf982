"""Turns the events of one answer into what was said: text, tool calls, finish reason, usage.

Pure: it is fed events and never reads, waits or knows an address.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from nodes.models.assembly import AmbiguousCallsError, CallAssembler, FinishedCall, UnusableCall
from nodes.models.sse import Event
from nodes.models.text import TextJoiner, whole_text
from nodes.models.usage import Usage, reported_usage

MAX_TEXT = 16 * 1024 * 1024
_LABELS = ("id", "model", "system_fingerprint", "service_tier")
_ERROR_FINISH = "error"
_PREVIEW = 200


class BadEventError(Exception):
    """An event that breaks the wire. The sentence goes into a `ProtocolError`."""


class ReportedInStreamError(Exception):
    """The stream says that the service failed.

    Attributes:
        status: An HTTP status that the report carries, or None.
    """

    def __init__(self, message: str, status: int | None) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Delta:
    """What one event adds for a person to see.

    Attributes:
        text: Answer text, whole characters only.
        reasoning: The model's thinking, where the provider shows it; never part of the answer.
    """

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer.

    Attributes:
        text: All text.
        calls: Calls that may run.
        unusable: Calls whose arguments are not an object.
        finish_reason: The provider's word, never empty.
        usage: Reported counts, or None.
        id: The provider's id of the answer, or empty.
        model: The model that the provider says it used, or empty.
        fingerprint: The provider's `system_fingerprint`, or empty.
        service_tier: The provider's `service_tier`, or empty.
    """

    text: str
    calls: tuple[FinishedCall, ...]
    unusable: tuple[UnusableCall, ...]
    finish_reason: str
    usage: Usage | None
    id: str = ""
    model: str = ""
    fingerprint: str = ""
    service_tier: str = ""

    @property
    def is_empty(self) -> bool:
        """Neither text nor a call."""
        return not (self.text or self.calls or self.unusable)


@dataclass(slots=True)
class AnswerReader:
    """Reads one streamed answer, event by event.

    Attributes:
        tools: For each offered tool, whether it accepts no arguments; None when the tools are not known.
        finish_reason: The finish reason so far; empty until there is one.
        done: True once `[DONE]` was read.
        usage: The newest usage that was reported; providers send running totals, so the last one counts.
        events: Events read so far, `[DONE]` not counted.
    """

    tools: Mapping[str, bool] | None = None
    finish_reason: str = ""
    done: bool = False
    usage: Usage | None = None
    events: int = 0
    _pieces: list[str] = field(default_factory=list)
    _characters: int = 0
    _hidden_characters: int = 0
    _joiner: TextJoiner = field(default_factory=TextJoiner)
    _thoughts: TextJoiner = field(default_factory=TextJoiner)
    _calls: CallAssembler = field(init=False)
    _said: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = CallAssembler(self.tools)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def characters(self) -> int:
        """Everything the model wrote so far, thinking and half tool calls included: what an estimate counts."""
        return self._characters + self._hidden_characters + self._calls.characters

    def feed(self, event: Event) -> Delta | None:
        """Reads one event.

        Returns:
            What a person can see of it, or None when nothing.

        Raises:
            BadEventError: The event breaks the wire.
            ReportedInStreamError: The event is an error report.
        """
        if event.data.strip() == b"[DONE]":
            self.done = True
            return self._last_half()
        if not event.data.strip() or event.name == b"ping":
            return None
        chunk = _parse(event.data)
        if not isinstance(chunk, dict):
            msg = "an event is not a JSON object"
            raise BadEventError(msg)
        if chunk.get("error") or event.name == b"error":
            raise _report(chunk)
        self.events += 1
        return self._chunk(chunk)

    def feed_whole(self, body: bytes) -> Delta | None:
        """Reads an answer that came as one JSON body although a stream was asked for. Raises as `feed` does."""
        answer = _parse(body)
        if not isinstance(answer, dict):
            msg = "the answer is not a JSON object"
            raise BadEventError(msg)
        if answer.get("error"):
            raise _report(answer)
        choices = [{**choice, "delta": choice.get("message")} for choice in _objects(answer.get("choices"), "choices")]
        self.events += 1
        self.done = True
        return self._chunk({**answer, "choices": choices})

    def finish(self, taken: Collection[str] = ()) -> Answer:
        """The complete answer; call it once, after a finish reason was read.

        Args:
            taken: Tool call ids that the conversation already uses.

        Raises:
            BadEventError: The tool calls cannot be told apart.
        """
        self._last_half()
        try:
            calls, unusable = self._calls.finish(cut=self.finish_reason == "length", taken=taken)
        except AmbiguousCallsError as error:
            raise BadEventError(str(error)) from error
        return Answer(
            text=self.text,
            calls=tuple(calls),
            unusable=tuple(unusable),
            finish_reason=self.finish_reason,
            usage=self.usage,
            id=self._said.get("id", ""),
            model=self._said.get("model", ""),
            fingerprint=self._said.get("system_fingerprint", ""),
            service_tier=self._said.get("service_tier", ""),
        )

    def _chunk(self, chunk: dict[str, Any]) -> Delta | None:
        for key in _LABELS:
            value = chunk.get(key)
            if value and value != self._said.get(key) and isinstance(value, str):
                self._said[key] = whole_text(value)
        if chunk.get("usage"):
            self.usage = reported_usage(chunk["usage"]) or self.usage
        for choice in _objects(chunk.get("choices"), "choices"):
            if choice.get("index") in (0, None):
                return self._choice(choice)
        return None

    def _choice(self, choice: dict[str, Any]) -> Delta | None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            msg = "a delta is not an object"
            raise BadEventError(msg)
        seen = self._say(delta)
        try:
            for fragment in _objects(delta.get("tool_calls"), "tool_calls"):
                self._calls.feed(fragment)
        except AmbiguousCallsError as error:
            raise BadEventError(str(error)) from error
        finish = choice.get("finish_reason")
        if finish is not None and not isinstance(finish, str):
            msg = "a finish reason is not text"
            raise BadEventError(msg)
        if finish == _ERROR_FINISH:
            raise ReportedInStreamError("finish reason error", None)
        if finish:
            self.finish_reason = whole_text(finish)[:_PREVIEW]
        return seen

    def _say(self, delta: dict[str, Any]) -> Delta | None:
        text = self._joiner.feed(_text(delta.get("content")) + _text(delta.get("refusal")))
        thought = self._thoughts.feed(_text(delta.get("reasoning_content")) or _text(delta.get("reasoning")))
        self._hidden_characters += len(thought)
        return self._keep(text, thought)

    def _keep(self, text: str, thought: str = "") -> Delta | None:
        if text:
            self._pieces.append(text)
            self._characters += len(text)
            if self._characters > MAX_TEXT:
                msg = f"the answer is longer than {MAX_TEXT} characters"
                raise BadEventError(msg)
        return Delta(text, thought) if text or thought else None

    def _last_half(self) -> Delta | None:
        return self._keep(self._joiner.close())


def _parse(data: bytes) -> Any:
    """JSON from bytes that may hold a broken character or half an escaped one; the mark for either is U+FFFD."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            preview = data[:_PREVIEW].decode("utf-8", "replace")
            msg = f"an event is not JSON ({preview!r})"
            raise BadEventError(msg) from error


def _objects(value: object, what: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        msg = f"{what} is not a list of objects"
        raise BadEventError(msg)
    return value


def _text(content: object) -> str:
    """Text of a delta: a string, or a list of content blocks of which the text ones count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"]
        return "".join(text for text in texts if isinstance(text, str))
    msg = "an answer's text is not text"
    raise BadEventError(msg)


def _report(chunk: dict[str, Any]) -> ReportedInStreamError:
    error = chunk.get("error") or chunk
    if not isinstance(error, dict):
        return ReportedInStreamError(whole_text(str(error)), None)
    message = error.get("message") or json.dumps(error)
    codes = (error.get("code"), error.get("status"))
    status = next((code for code in codes if isinstance(code, int) and 400 <= code < 600), None)
    return ReportedInStreamError(whole_text(str(message)), status)
