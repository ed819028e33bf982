"""LangChain's ChatOpenAI over this project's own wire. The only module that imports langchain_openai, and with it openai.

ChatOpenAI builds the payload (parameters, messages, tools) and gives the interface: `ainvoke`, `bind_tools`, `profile`,
callbacks and with them LangGraph's token stream. What it does not do here is talk: openai's client walks the whole history
against its type hints at each call (109 ms of CPU at 600 messages), and LangChain's way of merging chunks repairs cut
arguments, so that a half-arrived call would run.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import aiohttp
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr, SecretStr
from yarl import URL

from checkpoints.clock import Clock, SystemClock
from checkpoints.errors import UsageError
from nodes.models.answer import Answer, AnswerReader, BadEventError, Delta
from nodes.models.errors import EmptyReplyError, MissingKeyError, NoEndpointError, ProtocolError, UnsendableError
from nodes.models.redact import Redactor
from nodes.models.request import Body, RequestWriter
from nodes.models.spec import ModelSpec
from nodes.models.usage import Usage
from nodes.models.wire import Call, Endpoint, Watch, open_session

DEFAULT_WINDOW = 262_144
"""Tokens of a window that nobody names: what current open and hosted models offer at least."""

_USER_AGENT = "checkrein"
_NO_CLIENT = object()


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
    """ChatOpenAI that streams over a shared aiohttp session. `ChatModels` makes it; the sync methods are refused."""

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

    def _should_stream(self, **_: Any) -> bool:
        """Never through LangChain's merging: `_agenerate` streams by itself, tells the callbacks, and builds the message."""
        return False

    def _should_use_protocol_streaming(self, **_: Any) -> bool:
        """Never, for the same reason."""
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

        async def show(delta: Delta) -> None:
            self._watch.saw(delta)
            if handlers and run_manager is not None and delta.text:
                await run_manager.on_llm_new_token(delta.text, chunk=_text_chunk(delta.text, message_id))

        answer = await self._ask(messages, stop, kwargs, show)
        message = to_message(answer, message_id)
        if handlers and run_manager is not None and message.tool_calls:
            await run_manager.on_llm_new_token("", chunk=_calls_chunk(message))
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
            await queue.put(delta.text)

        asking = asyncio.create_task(self._ask(messages, stop, kwargs, show), name=f"model stream {self.model_name}")
        asking.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (text := await queue.get()) is not None:
                chunk = _text_chunk(text, None)
                if run_manager:
                    await run_manager.on_llm_new_token(text, chunk=chunk)
                yield chunk
            message = to_message(await asking, None)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        yield _calls_chunk(message)

    async def _ask(self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any], show: Any) -> Answer:
        target = self._endpoint.target
        body = self._body(messages, stop, kwargs)
        reader = AnswerReader(tools=_tools_without_arguments(kwargs.get("tools")))
        self._watch.begins(characters=len(body.data), reader=reader)
        call = Call(self._session(), self._endpoint, reader, deadline=self._watch.deadline, clock=self._clock)
        await call.run(body.data, show)
        try:
            answer = reader.finish(body.ids)
        except BadEventError as error:
            raise ProtocolError(target, self._endpoint.redactor.text(str(error))) from error
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


class ChatModels:
    """Makes and keeps one chat model for each spec, over one HTTP session of the running loop.

    Whoever owns the loop closes it (`async with`, or `aclose`). `ask` is what `nodes.models.reply.reply` is given.

    Args:
        environment: Where keys are looked up by name; the process's environment by default.
        clock: Where monotonic seconds come from.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, clock: Clock | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._clock = clock or SystemClock()
        self._chats: dict[str, WireChat] = {}
        self._open: tuple[asyncio.AbstractEventLoop, aiohttp.ClientSession] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. A later call opens new ones."""
        opened, self._open = self._open, None
        if opened is not None and opened[0] is asyncio.get_running_loop():
            await opened[1].close()

    async def ask(
        self, spec: ModelSpec, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], watch: Watch
    ) -> AIMessage:
        """One attempt at one model: no retry, no fallback.

        Args:
            spec: Who is asked.
            messages: The conversation; it is sent in a sound form and not changed.
            tools: Functions that the model may call, as OpenAI writes them.
            watch: Follows the attempt.

        Returns:
            The reply. Calls that cannot run are in `invalid_tool_calls`, each with its reason.

        Raises:
            ModelError: There was no reply.
        """
        chat = self.chat(spec).watched(watch)
        options: dict[str, Any] = {"tools": list(tools)} if tools else {}
        return await chat.ainvoke(list(messages), **options)

    def chat(self, spec: ModelSpec) -> WireChat:
        """The chat model of a spec, for use with LangChain.

        Raises:
            NoEndpointError: The spec has no address.
            MissingKeyError: The key's variable is not set, or the key is not one line of plain characters.
        """
        key = spec.key(self._environment.get)
        cache_key = f"{spec.model_dump_json()} {hash(key)}"
        if cache_key not in self._chats:
            self._chats[cache_key] = self._make(spec, key)
        return self._chats[cache_key]

    def window(self, spec: ModelSpec) -> int:
        """Tokens that fit the model's window: the spec's, else the profile's, else `DEFAULT_WINDOW`. Never fails."""
        if spec.window is not None:
            return spec.window
        try:
            profile = self.chat(spec).profile or {}
        except Exception:  # noqa: BLE001  (third-party look-up; a run must not die of a missing table row)
            return DEFAULT_WINDOW
        found = profile.get("max_input_tokens")
        return found if isinstance(found, int) and found > 0 else DEFAULT_WINDOW

    def _make(self, spec: ModelSpec, key: str | None) -> WireChat:
        endpoint = _endpoint(spec, key)
        chat = WireChat(
            model=spec.model,
            api_key=SecretStr("unused"),
            client=_NO_CLIENT,
            async_client=_NO_CLIENT,
            streaming=True,
            stream_usage=spec.stream_usage,
            use_responses_api=False,
            max_retries=0,
            cache=False,
            **spec.parameters,
        )
        chat.attach(endpoint, self._session, self._clock)
        return chat

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop or self._open[1].closed:
            self._open = (loop, open_session())
        return self._open[1]


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


def _endpoint(spec: ModelSpec, key: str | None) -> Endpoint:
    if not spec.base_url:
        raise NoEndpointError(spec.target)
    if (key is None and spec.api_key_env) or (key is not None and not (key.isascii() and key.isprintable())):
        raise MissingKeyError(spec.target)
    base = URL(spec.base_url)
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
    return Endpoint(
        url=(base / "chat/completions").with_query(base.query),
        target=spec.target,
        headers=headers if key is None else {**headers, "Authorization": f"Bearer {key}"},
        timeouts=spec.timeouts,
        redactor=Redactor([] if key is None else [key]),
        proxy=spec.proxy,
    )


def _tools_without_arguments(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, bool] | None:
    """For each offered function, whether its schema accepts no arguments."""
    if tools is None:
        return None
    functions = [tool.get("function") or {} for tool in tools]
    return {
        function["name"]: not (function.get("parameters") or {}).get("required") for function in functions if "name" in function
    }


def _text_chunk(text: str, message_id: str | None) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=text, id=message_id))


def _calls_chunk(message: AIMessage) -> ChatGenerationChunk:
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
