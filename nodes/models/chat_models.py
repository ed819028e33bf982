"""One chat model for each spec, over one HTTP session: what the model node asks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import aiohttp
from langchain_core.messages import AIMessage, BaseMessage
from pydantic import SecretStr
from yarl import URL

from checkpoints.clock import Clock, SystemClock
from nodes.models.chat import NO_CLIENT, WireChat
from nodes.models.errors import MissingKeyError, NoEndpointError, ParametersError
from nodes.models.redact import Redactor
from nodes.models.spec import ModelSpec
from nodes.models.wire import MAX_BODY, Endpoint, Watch, open_session

DEFAULT_WINDOW = 262_144
"""Tokens of a window that nobody names: what current open and hosted models offer at least."""

_MOST_CHATS = 256  # specs come from outside too; a forgotten one is made again in about a millisecond
_USER_AGENT = "checkrein"


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
        self._chats: dict[tuple[str, str | None], WireChat] = {}
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
            ParametersError: ChatOpenAI refuses the spec's parameters.
        """
        key = spec.key(self._environment.get)
        cache_key = (spec.model_dump_json(), key)
        if cache_key not in self._chats:
            if len(self._chats) >= _MOST_CHATS:
                self._chats.pop(next(iter(self._chats)))
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
        try:
            chat = WireChat(
                model=spec.model,
                api_key=SecretStr("unused"),
                client=NO_CLIENT,
                async_client=NO_CLIENT,
                streaming=True,
                stream_usage=spec.stream_usage,
                use_responses_api=False,
                max_retries=0,
                cache=False,
                **spec.parameters,
            )
        except (ValueError, TypeError) as error:
            raise ParametersError(spec.target, endpoint.redactor.text(str(error), limit=MAX_BODY)) from None
        chat.attach(endpoint, self._session, self._clock)
        return chat

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop or self._open[1].closed:
            self._open = (loop, open_session())
        return self._open[1]


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
    )
