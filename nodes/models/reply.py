"""One reply from a chain of models: retry and fallback before the first visible chunk, and never after it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from langchain_core.messages import AIMessage, BaseMessage

from checkpoints.clock import Clock, SystemClock
from nodes.models import events
from nodes.models.answer import AnswerReader, Delta
from nodes.models.errors import ModelDeadlineError, ModelError
from nodes.models.spec import ModelChain, ModelSpec
from nodes.models.usage import UNKNOWN, Usage, estimated_usage
from nodes.models.waits import seconds_to_wait
from nodes.models.wire import Watch
from nodes.tools.tool import Emit, Tool

AttemptStatus = Literal["completed", "failed", "cancelled"]


class Ask(Protocol):
    """Makes one attempt at one model; `nodes.models.chat_models.ChatModels.ask` is the real one."""

    async def __call__(
        self, spec: ModelSpec, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], watch: Watch
    ) -> AIMessage:
        """Returns the reply, or raises a ModelError; cancellation closes the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one attempt went.

    Attributes:
        number: 1 for the first attempt of this reply.
        model: The model's name in its chain.
        status: How it ended.
        http_status: The HTTP status of a refusal; None where there was none.
        committed: Whether a person saw a part of its answer. A committed attempt is never repeated.
        usage: Tokens: reported, or estimated from what was sent and had arrived, or unknown where nothing was answered.
        cause: The error's code; empty when it completed, `cancelled` when it was cancelled.
        detail: The error's sentence, free of keys.
        seconds: How long it took.
    """

    number: int
    model: str
    status: AttemptStatus
    http_status: int | None
    committed: bool
    usage: Usage
    cause: str
    detail: str
    seconds: float

    def record(self) -> dict[str, Any]:
        """The attempt as plain JSON."""
        return {
            "attempt": self.number,
            "model": self.model,
            "status": self.status,
            "http_status": self.http_status,
            "committed": self.committed,
            "usage": self.usage.record(),
            "cause": self.cause,
            "detail": self.detail,
            "seconds": round(self.seconds, 4),
        }


@dataclass(slots=True)
class Draft:
    """What exists of a reply that is not finished. The caller makes it, and reads it when `reply` did not return.

    Attributes:
        model: The model that wrote the text; empty while nothing was seen.
        attempts: The attempts that have ended.
        pieces: What a person saw so far, piece by piece.
    """

    model: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list, repr=False)

    @property
    def text(self) -> str:
        """What a person saw so far."""
        return "".join(self.pieces)

    @property
    def usage(self) -> Usage:
        """Tokens of all ended attempts together."""
        return sum((attempt.usage for attempt in self.attempts), UNKNOWN)

    def interrupted(self) -> AIMessage | None:
        """The text that was shown, as a message marked `interrupted`, without any tool call; None when nothing was shown."""
        if not self.pieces:
            return None
        return AIMessage(content=self.text, response_metadata={"interrupted": True, "model_name": self.model})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A complete reply.

    Attributes:
        message: The message; calls that cannot run are its `invalid_tool_calls`, each with the reason for the model.
        attempts: Every attempt, the successful one last.
        usage: Tokens of all attempts together.
        model: Name of the model that answered. The run is pinned to it from now on.
    """

    message: AIMessage
    attempts: tuple[Attempt, ...]
    usage: Usage
    model: str


async def reply(
    messages: Sequence[BaseMessage],
    tools: Sequence[Tool],
    chain: ModelChain,
    *,
    ask: Ask,
    emit: Emit,
    deadline: float | None = None,
    pinned: str | None = None,
    draft: Draft | None = None,
    clock: Clock | None = None,
) -> ModelReply:
    """Asks the chain's models until one has answered.

    A model is asked again as often as its spec says, and then the next one is asked, as long as nobody has seen a part of an
    answer. A failed attempt leaves no text, no call and no id behind.

    Args:
        messages: The conversation.
        tools: What the model may call.
        chain: Who may answer, first choice first.
        ask: Makes one attempt.
        emit: The run's event sink; `nodes.models.events` names the kinds.
        deadline: Monotonic second at which the run ends, or None. Waits that would reach it are not begun.
        pinned: The model that the run is pinned to: only it is asked, without fallback.
        draft: Filled as the reply goes on, so that it is there after a failure or a cancellation.
        clock: Where time comes from.

    Raises:
        ModelError: Of the last attempt, when none succeeded.
        UnknownPinnedModelError: The chain does not name the pinned model.
        asyncio.CancelledError: The attempt's connection is closed and its `model_attempt` event is out by then.
    """
    course = _Course(
        messages=messages,
        tools=[function_of(tool) for tool in tools],
        ask=ask,
        emit=emit,
        deadline=deadline,
        draft=draft if draft is not None else Draft(),
        clock=clock or SystemClock(),
    )
    return await course.run(chain.candidates(pinned))


@functools.lru_cache(maxsize=512)
def function_of(tool: Tool) -> dict[str, Any]:
    """A tool as the wire describes functions. Made once for each tool; not to be changed by the receiver."""
    schema = tool.arguments.model_json_schema()
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": schema}}


@dataclass(slots=True)
class _AttemptWatch:
    """Follows one attempt: emits what is seen, and knows what it cost when it fails."""

    deadline: float | None
    emit: Emit
    draft: Draft
    model: str
    committed: bool = False
    sent_characters: int = 0
    reader: AnswerReader | None = None

    def begins(self, *, characters: int, reader: AnswerReader) -> None:
        self.sent_characters = characters
        self.reader = reader

    def saw(self, delta: Delta) -> None:
        if delta.reasoning:
            self.emit(events.REASONING, text=delta.reasoning)
        if delta.text:
            self.committed = True
            self.draft.model = self.model
            self.draft.pieces.append(delta.text)
            self.emit(events.TOKEN, text=delta.text)

    def usage(self, error: BaseException | None) -> Usage:
        """Reported counts where there are any; an estimate where the model had begun or was cut off; else unknown."""
        if self.reader is not None and self.reader.usage is not None:
            return self.reader.usage
        answering = self.reader is not None and (error is None or self.reader.events > 0)
        if self.reader is None or not (answering or isinstance(error, asyncio.CancelledError)):
            return UNKNOWN
        return estimated_usage(input_characters=self.sent_characters, output_characters=self.reader.characters)


@dataclass(slots=True, kw_only=True)
class _Course:
    """The attempts of one reply, one after the other."""

    messages: Sequence[BaseMessage]
    tools: Sequence[Mapping[str, Any]]
    ask: Ask
    emit: Emit
    deadline: float | None
    draft: Draft
    clock: Clock

    async def run(self, candidates: Sequence[ModelSpec]) -> ModelReply:
        plan = [spec for spec in candidates for _ in range(spec.retries + 1)]
        while True:
            spec = plan.pop(0)
            try:
                return await self._attempt(spec)
            except ModelError as error:
                failed = error
            wait = self._wait_for(spec, failed)
            plan = self._remaining(plan, spec, failed, wait)
            if not plan:
                raise failed
            self.emit(events.STREAM_RESET, attempt=len(self.draft.attempts), model=spec.name, cause=failed.code)
            if plan[0] is spec:
                self.emit(events.MODEL_WAITING, model=spec.name, seconds=round(wait, 3), cause=failed.code)
                await asyncio.sleep(wait)

    def _remaining(self, plan: list[ModelSpec], spec: ModelSpec, failed: ModelError, wait: float) -> list[ModelSpec]:
        """Who may still be asked after a failure: nobody once something was seen, not the same model where that is no use."""
        if any(attempt.committed for attempt in self.draft.attempts):
            return []
        others = [other for other in plan if other is not spec] if failed.other_model_may_help else []
        in_time = self.deadline is None or self.clock.monotonic() + wait < self.deadline
        again = [other for other in plan if other is spec] if failed.retryable and in_time else []
        return again + others

    def _wait_for(self, spec: ModelSpec, failed: ModelError) -> float:
        retry = sum(attempt.model == spec.name for attempt in self.draft.attempts)
        return seconds_to_wait(failed.retry_after, retry=retry, now=self.clock.now())

    async def _attempt(self, spec: ModelSpec) -> ModelReply:
        if self.deadline is not None and self.clock.monotonic() >= self.deadline:
            raise ModelDeadlineError(spec.target)
        number = len(self.draft.attempts) + 1
        watch = _AttemptWatch(deadline=self.deadline, emit=self.emit, draft=self.draft, model=spec.name)
        started = self.clock.monotonic()
        self.emit(events.MODEL_STARTED, attempt=number, model=spec.name)
        try:
            message = await self.ask(spec, self.messages, self.tools, watch)
        except BaseException as error:
            self._ended(spec, watch, number, started, error)
            raise
        self._ended(spec, watch, number, started, None)
        return ModelReply(message=message, attempts=tuple(self.draft.attempts), usage=self.draft.usage, model=spec.name)

    def _ended(self, spec: ModelSpec, watch: _AttemptWatch, number: int, started: float, error: BaseException | None) -> None:
        attempt = Attempt(
            number=number,
            model=spec.name,
            status=_status(error),
            http_status=error.status if isinstance(error, ModelError) else 200 if error is None else None,
            committed=watch.committed or error is None,
            usage=watch.usage(error),
            cause=_cause(error),
            detail=str(error) if isinstance(error, ModelError) else "",
            seconds=self.clock.monotonic() - started,
        )
        self.draft.attempts.append(attempt)
        self.emit(events.MODEL_ATTEMPT, **attempt.record())


def _status(error: BaseException | None) -> AttemptStatus:
    if error is None:
        return "completed"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"


def _cause(error: BaseException | None) -> str:
    if error is None:
        return ""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return error.code if isinstance(error, ModelError) else type(error).__name__
