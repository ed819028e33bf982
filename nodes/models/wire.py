"""One streamed chat-completions call over HTTP: bytes out, deltas in, and every failure as an error of this project.

Errors from below are not chained to ours: their texts may quote the service, which may quote the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, TypeVar

import aiohttp
from yarl import URL

from checkpoints.clock import Clock
from nodes.models.answer import AnswerReader, BadEventError, Delta, ReportedInStreamError
from nodes.models.errors import (
    ConnectionRefusedByModelError,
    DisconnectedError,
    HostUnknownError,
    ModelDeadlineError,
    ModelError,
    ModelTimeoutError,
    ProtocolError,
    ReportedError,
    Target,
    TlsError,
    TruncatedReplyError,
    UnreachableError,
    status_error,
)
from nodes.models.redact import Redactor
from nodes.models.spec import Timeouts
from nodes.models.sse import EventReader, OversizedEventError
from nodes.models.stall import StallTimer

MAX_BODY = 1_000
"""Characters of a service's error text that are kept."""

_MAX_ERROR_BYTES = 65_536
_MAX_WHOLE_BYTES = 32 * 1024 * 1024
_AFTER_FINISH = 5.0  # usage may still follow the finish reason; a provider that sends nothing more must not hold the run
_AFTER_DONE = 0.05  # the last bytes of the framing, so that the connection can be used again
_KEEP_ALIVE = 4.0  # below the 5 s of common servers (uvicorn, Node), so that no request meets a connection that is closing


Source = TypeVar("Source")

Show = Callable[[Delta], Awaitable[None]]
"""Takes one delta; the next byte is read when it returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one model is asked, and how. Holds the key, so its repr shows none of the headers.

    Attributes:
        url: The address of the completions resource.
        target: Who that is, in words that are safe to show.
        headers: Headers of each request.
        timeouts: Limits of one attempt.
        redactor: Takes the key out of whatever the service says.
    """

    url: URL = field(repr=False)
    target: Target
    headers: Mapping[str, str] = field(repr=False)
    timeouts: Timeouts
    redactor: Redactor


class Watch(Protocol):
    """Who follows one attempt while it goes on, so that what arrived is known also when the attempt fails."""

    @property
    def deadline(self) -> float | None:
        """Monotonic second at which the run ends, or None."""

    def begins(self, *, characters: int, reader: AnswerReader) -> None:
        """Called once before the request is sent, with its size and with what will hold the answer."""

    def saw(self, delta: Delta) -> None:
        """Called for each delta that a person can see, in order."""


def open_session() -> aiohttp.ClientSession:
    """A session for the running loop. Its owner closes it.

    No cookies, no redirects to follow with a key, no proxy or netrc from the environment, and no limit on connections: runs
    wait for models, not for each other.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


class Call:
    """One attempt at one endpoint.

    Args:
        session: The shared session of this loop.
        endpoint: Who is asked.
        reader: Takes the answer's events.
        deadline: Monotonic second at which the run ends, or None.
        clock: Where monotonic seconds come from.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        reader: AnswerReader,
        *,
        deadline: float | None,
        clock: Clock,
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._target = endpoint.target
        self._reader = reader
        self._deadline = deadline
        self._clock = clock
        self._events = EventReader()
        self._sent = clock.monotonic()

    async def run(self, body: bytes, show: Show) -> None:
        """Sends the request and shows each delta as it arrives; returns when the answer is complete.

        Cancellation closes the connection; no further byte is read and nothing is shown any more.

        Raises:
            ModelError: The attempt failed; `reader` holds what had arrived.
        """
        response = await self._open(body)
        whole = False
        try:
            if response.status != HTTPStatus.OK:
                await self._refuse(response)
            if response.content_type == "application/json":
                await self._whole(response, show)
            else:
                await self._stream(response, show)
            await self._check_complete(show)
            whole = await self._drained(response)
        finally:
            if whole:
                response.release()
            else:
                response.close()

    async def _open(self, body: bytes) -> aiohttp.ClientResponse:
        limits = self._endpoint.timeouts
        self._sent = self._clock.monotonic()
        timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect)
        try:
            async with asyncio.timeout(self._allowed(limits.connect + limits.first_byte)):
                return await self._session.post(
                    self._endpoint.url,
                    data=body,
                    headers=self._endpoint.headers,
                    timeout=timeout,
                    allow_redirects=False,
                )
        except aiohttp.ConnectionTimeoutError:
            raise self._late("connect", limits.connect) from None
        except TimeoutError:
            raise self._late("first byte", limits.first_byte) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._failure(error) from None

    async def _stream(self, response: aiohttp.ClientResponse, show: Show) -> None:
        timer = StallTimer(response.content)
        try:
            await self._packets(timer, show)
        finally:
            timer.stop()

    async def _packets(self, timer: StallTimer, show: Show) -> None:
        limits = self._endpoint.timeouts
        phase, limit = "first byte", limits.first_byte
        seen = 0
        timer.start(self._allowed(max(0.0, limits.connect + limit - (self._clock.monotonic() - self._sent))))
        while not self._reader.done:
            packet = await self._next(timer, phase, limit)
            if packet is None:
                return
            await self._take(packet, show)
            if self._reader.events > seen:
                seen = self._reader.events
                phase, limit = "between chunks", limits.between_chunks
                timer.start(self._allowed(min(limit, _AFTER_FINISH) if self._reader.finish_reason else limit))

    async def _next(self, timer: StallTimer, phase: str, limit: float) -> bytes | None:
        """The next packet; None at the end of the stream, or when the answer is complete and nothing more comes."""
        complete = bool(self._reader.finish_reason)
        try:
            return await timer.read() or None
        except TimeoutError:
            if complete:
                return None
            raise self._late(phase, limit) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if complete:
                return None
            raise self._failure(error) from None

    async def _take(self, packet: bytes, show: Show) -> None:
        """Reads a packet's events one by one, so that what is shown does not depend on how the stream was cut."""
        try:
            events = self._events.feed(packet)
        except OversizedEventError:
            raise ProtocolError(self._target, "one event is too large") from None
        for event in events:
            if self._reader.done:
                return
            delta = self._read(self._reader.feed, event)
            if delta is not None:
                await show(delta)

    async def _whole(self, response: aiohttp.ClientResponse, show: Show) -> None:
        """An answer that came as one JSON body although a stream was asked for."""
        delta = self._read(self._reader.feed_whole, await self._body(response, _MAX_WHOLE_BYTES))
        if delta is not None:
            await show(delta)

    def _read(self, read: Callable[[Source], Delta | None], source: Source) -> Delta | None:
        """Reads something, and says whose answer it was when it cannot be read."""
        try:
            return read(source)
        except BadEventError as error:
            raise ProtocolError(self._target, self._redacted(error)) from None
        except ReportedInStreamError as error:
            if error.status is not None:
                raise status_error(self._target, error.status, self._redacted(error)) from None
            raise ReportedError(self._target, self._redacted(error)) from None

    def _redacted(self, error: Exception) -> str:
        return self._endpoint.redactor.text(str(error) or type(error).__name__, limit=MAX_BODY)

    async def _refuse(self, response: aiohttp.ClientResponse) -> None:
        body = await self._body(response, _MAX_ERROR_BYTES)
        text = self._endpoint.redactor.text(body.decode("utf-8", "replace").strip(), limit=MAX_BODY)
        raise status_error(self._target, response.status, text, response.headers.get("Retry-After"))

    async def _body(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        """The body up to a limit; what had arrived when it breaks off in an error answer, for its status says enough."""
        seconds = self._endpoint.timeouts.between_chunks
        body = bytearray()
        try:
            async with asyncio.timeout(self._allowed(seconds)):
                while len(body) < limit and (packet := await response.content.readany()):
                    body += packet
        except TimeoutError:
            if response.status == HTTPStatus.OK:
                raise self._late("between chunks", seconds) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if response.status == HTTPStatus.OK:
                raise self._failure(error) from None
        return bytes(body[:limit])

    async def _check_complete(self, show: Show) -> None:
        """Refuses an answer that ended without saying so.

        Raises:
            TruncatedReplyError: There was no finish reason.
        """
        last = self._events.close()
        if last is not None and not self._reader.done:
            with contextlib.suppress(ProtocolError):  # half an event at the end of a broken stream counts as nothing
                delta = self._read(self._reader.feed, last)
                if delta is not None:
                    await show(delta)
        if not self._reader.finish_reason:
            seen = self._endpoint.redactor.text(self._events.stray.decode("utf-8", "replace"), limit=MAX_BODY)
            what = f"it is not an event stream, it starts with {seen!r}" if seen else "it ended without a finish reason"
            raise TruncatedReplyError(self._target, what)

    async def _drained(self, response: aiohttp.ClientResponse) -> bool:
        """Whether the response was read to its end, so that its connection can serve the next call."""
        try:
            async with asyncio.timeout(_AFTER_DONE):
                return not await response.content.readany() or response.content.at_eof()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False

    def _allowed(self, seconds: float) -> float:
        """Seconds that an operation may take when the run's deadline is counted in.

        Raises:
            ModelDeadlineError: The deadline has passed.
        """
        if self._deadline is None:
            return seconds
        left = self._deadline - self._clock.monotonic()
        if left <= 0:
            raise ModelDeadlineError(self._target)
        return min(seconds, left)

    def _late(self, phase: str, seconds: float) -> ModelError:
        if self._deadline is not None and self._clock.monotonic() >= self._deadline - 0.001:
            return ModelDeadlineError(self._target)
        return ModelTimeoutError(self._target, phase, seconds)

    def _no_connection(self, error: OSError) -> ModelError:
        if isinstance(error, ConnectionRefusedError):
            return ConnectionRefusedByModelError(self._target)
        if isinstance(error, ConnectionError) and self._endpoint.url.scheme == "https":
            return TlsError(self._target, "the connection was closed during the handshake")
        return UnreachableError(self._target, error.strerror or type(error).__name__)

    def _failure(self, error: Exception) -> ModelError:
        reason = self._redacted(error)
        if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
            return TlsError(self._target, reason)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return HostUnknownError(self._target, error.host)
        if isinstance(error, aiohttp.ClientConnectorError):
            return self._no_connection(error.os_error)
        if isinstance(error, aiohttp.ClientResponseError | ValueError):
            return ProtocolError(self._target, f"it is not HTTP as it should be: {reason}")
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return DisconnectedError(self._target, "the connection closed without an answer")
        if isinstance(error, aiohttp.ClientPayloadError):
            return DisconnectedError(self._target, "the connection closed in the middle of the answer")
        return DisconnectedError(self._target, reason)
