"""LangChain's ChatOpenAI over this project's own wire. The only module that imports langchain_openai, and with it openai.

ChatOpenAI builds the payload (parameters, messages, tools) and gives the interface: `ainvoke`, `bind_tools`, `profile`,
callbacks and with them LangGraph's token stream. What it does not do here is talk: openai's client walks the whole history
against its type hints at each call (109 ms of CPU at 600 messages), and LangChain's way of merging chunks repairs cut
arguments, so that a half-arrived call would run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import aiohttp
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from checkpoints.clock import Clock
from checkpoints.errors import UsageError
from nodes.models.answer import Answer, AnswerReader, BadEventError, Delta
from nodes.models.errors import EmptyReplyError, ProtocolError, UnsendableError
from nodes.models.message import calls_chunk, text_chunk, to_message
from nodes.models.request import Body, RequestWriter
from nodes.models.wire import Call, Endpoint, Show, Watch

NO_CLIENT = object()
"""Stands where ChatOpenAI would build clients of its own, which cost 100 ms and are never used."""


class SyncCallError(UsageError):
    """Somebody called the model without awaiting it."""

    code = "model_sync_call"

    def __init__(self) -> None:
        self.hint = "Use ainvoke or astream."
        super().__init__("This model answers asynchronous calls only.")


class _Unwatched:
    """The watch of a call that nobody follows."""

    deadline: float | None = None

    def begins(self, *, characters: int, reader: AnswerReader) -> None:
        pass

    def saw(self, delta: Delta) -> None:
        pass


class WireChat(ChatOpenAI):
    """ChatOpenAI that streams over a shared aiohttp session; made by `ChatModels`. The sync methods are refused."""

    _endpoint: Endpoint = PrivateAttr()
    _session: Callable[[], aiohttp.ClientSession] = PrivateAttr()
    _clock: Clock = PrivateAttr()
    _writer: RequestWriter = PrivateAttr()
    _watch: Watch = PrivateAttr(default_factory=_Unwatched)

    def watched(self, watch: Watch) -> Self:
        """The same model, sharing everything, whose next call is followed by `watch`."""
        copy = self.model_copy()
        copy.follow(watch)
        return copy

    def follow(self, watch: Watch) -> None:
        """From now on `watch` follows each call."""
        self._watch = watch

    def attach(self, endpoint: Endpoint, session: Callable[[], aiohttp.ClientSession], clock: Clock) -> None:
        """Says where to call and over what; done once, by the maker."""
        self._endpoint = endpoint
        self._session = session
        self._clock = clock
        self._writer = RequestWriter(self._as_wire)

    def _should_stream(self, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        """Only for `astream`, which says so. `_agenerate` streams by itself and tells the callbacks."""
        return async_api and bool(kwargs.get("stream"))

    def _should_use_protocol_streaming(self, **_: Any) -> bool:
        """Never: it would merge chunks in LangChain's way."""
        return False

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise SyncCallError

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        raise SyncCallError

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message_id = f"lc_run--{run_manager.run_id}" if run_manager else None
        handlers = bool(run_manager and run_manager.handlers)
        saw = self._watch.saw

        async def show(delta: Delta) -> None:
            saw(delta)
            if handlers and run_manager is not None and delta.text:
                await run_manager.on_llm_new_token(delta.text, chunk=text_chunk(delta.text, message_id))

        answer = await self._ask(messages, stop, kwargs, show)
        message = to_message(answer, message_id)
        if handlers and run_manager is not None and message.tool_calls:
            await run_manager.on_llm_new_token("", chunk=calls_chunk(message))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        stream_usage: bool | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Text as it comes, then the calls that may run, whole; unusable calls are only in `ainvoke`'s message."""
        if stream_usage is not None:
            kwargs["stream_options"] = {"include_usage": stream_usage}
        queue: asyncio.Queue[str | None] = asyncio.Queue()

        async def show(delta: Delta) -> None:
            self._watch.saw(delta)
            if delta.text:
                await queue.put(delta.text)

        asking = asyncio.create_task(self._ask(messages, stop, kwargs, show), name=f"model stream {self.model_name}")
        asking.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (text := await queue.get()) is not None:
                chunk = text_chunk(text, None)
                if run_manager:
                    await run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
            message = to_message(await asking, None)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        yield calls_chunk(message)

    async def _ask(self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any], show: Show) -> Answer:
        target = self._endpoint.target
        body = self._body(messages, stop, kwargs)
        reader = AnswerReader(tools=_tools_without_arguments(kwargs.get("tools")))
        self._watch.begins(characters=len(body.data), reader=reader)
        call = Call(self._session(), self._endpoint, reader, deadline=self._watch.deadline, clock=self._clock)
        await call.run(body.data, show)
        try:
            answer = reader.finish(body.ids)
        except BadEventError as error:
            raise ProtocolError(target, self._endpoint.redactor.text(str(error))) from None
        if answer.is_empty:
            raise EmptyReplyError(target, answer.finish_reason)
        return answer

    def _body(self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> Body:
        options = {"stream_options": {"include_usage": True}} if self.stream_usage else {}
        try:
            head = self._get_request_payload([], stop=stop, **{**options, **kwargs, "stream": True})
            extra = head.pop("extra_body", None) or {}
            return self._writer.body({**head, **extra}, messages)
        except (TypeError, ValueError) as error:
            raise UnsendableError(self._endpoint.target, self._endpoint.redactor.text(str(error), limit=500)) from error

    def _as_wire(self, message: BaseMessage) -> dict[str, Any]:
        """One message as ChatOpenAI's payload builder writes it."""
        written: dict[str, Any] = self._get_request_payload([message])["messages"][0]
        return written


def _tools_without_arguments(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, bool] | None:
    """For each offered function, whether its schema accepts no arguments."""
    if tools is None:
        return None
    functions = [tool.get("function") or {} for tool in tools]
    return {
        function["name"]: not (function.get("parameters") or {}).get("required") for function in functions if "name" in function
    }
