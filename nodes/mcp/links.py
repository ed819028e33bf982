"""Ways to a server: the standard streams of a process inside a guard, or streamable HTTP.

A link hands messages to a session through in-memory streams. Only what a session needs comes through: answers, and requests
that it can refuse by itself. Notifications (logs, progress) stop here: nothing uses them, and the library would print some.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, ServerRequest
from pydantic import ValidationError

from nodes.processes.processes import Processes, Streams
from nodes.processes.scope import Scope
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Reason

MAX_MESSAGE = 8 << 20
"""Bytes of one message, or of one HTTP answer: enough for a picture, not for memory to run out."""

MAX_GARBAGE = 100
"""Lines on standard output that are no messages; a server that prints more is taken for something else than a server."""

LEAVE = 0.5
"""Seconds between the end of its input and the end of a server that does not leave by itself."""

_CONNECT = 30.0
_LAST_WORDS = 600

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("httpx").addHandler(logging.NullHandler())
# A server's words must not reach the terminal through a library's warnings; who sets up logging still gets them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An open way to a server.

    Attributes:
        incoming: What the server says.
        outgoing: What it is told.
        ended: Done when the server can say nothing more; its result says why, a phrase with the server as its subject.
        last_words: Gives the end of what the server wrote to standard error; waits a moment for one that is about to end.
    """

    incoming: Incoming
    outgoing: Outgoing
    ended: asyncio.Future[str]
    last_words: Callable[[], Awaitable[str]]


@asynccontextmanager
async def stdio_link(processes: Processes, spec: ScopeSpec, note: Callable[[str], None]) -> AsyncIterator[Link]:
    """Starts a server inside a guard; on the way out closes its input, and kills what does not leave at once.

    Args:
        processes: Where to start it.
        spec: How to start it.
        note: Told when nobody can prove that the server is gone.

    Raises:
        ProcessesError: It could not be started.
    """
    ours, theirs = socket.socketpair()
    async with AsyncExitStack() as stack:
        stack.callback(ours.close)
        with theirs:
            scope = await processes.start(spec, Streams(stdin=theirs.fileno(), stdout=theirs.fileno()))
        stack.push_async_callback(_end, scope, note)
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_MESSAGE)
        stack.callback(writer.close)
        from_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, to_server = anyio.create_memory_object_stream[SessionMessage](0)
        ended = await stack.enter_async_context(_running(_receive(reader, from_server), f"messages of {spec.title}"))
        await stack.enter_async_context(_running(_send(to_server, writer), f"messages to {spec.title}"))
        stack.push_async_callback(_leave, scope, writer)
        yield Link(incoming=incoming, outgoing=outgoing, ended=ended, last_words=lambda: _last_words(scope))


@asynccontextmanager
async def http_link(url: str, seconds: float) -> AsyncIterator[Link]:
    """Speaks streamable HTTP; on the way out ends the session there.

    Args:
        url: The server's address. Redirects are followed on its own origin only.
        seconds: How long an answer may take.
    """
    limits = httpx.Timeout(_CONNECT, read=seconds + _CONNECT)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=limits, event_hooks={"response": [_bound]}))
        received, outgoing, _ = await stack.enter_async_context(streamable_http_client(url, http_client=client))
        from_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        ended = await stack.enter_async_context(_running(_pass_on(received, from_server), f"messages of {url}"))
        yield Link(incoming=incoming, outgoing=outgoing, ended=ended, last_words=_no_words)


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, str], name: str) -> AsyncIterator[asyncio.Task[str]]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _receive(reader: asyncio.StreamReader, session: MemoryObjectSendStream[SessionMessage | Exception]) -> str:
    garbage = 0
    with session, suppress(anyio.BrokenResourceError):  # nobody listens any more: the session has ended
        while garbage <= MAX_GARBAGE:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                return f"sent a message of more than {MAX_MESSAGE} bytes"
            except (asyncio.IncompleteReadError, ConnectionError):
                return "ended"
            try:
                message = JSONRPCMessage.model_validate_json(line)
            except ValidationError:
                garbage += bool(line.strip())
                continue
            if _is_needed(message):
                await session.send(SessionMessage(message))
        return f"printed more than {MAX_GARBAGE} lines that are no messages"
    return "was left"


async def _send(session: MemoryObjectReceiveStream[SessionMessage], writer: asyncio.StreamWriter) -> str:
    with session, suppress(ConnectionError):  # that it is gone is seen by who reads
        async for item in session:
            writer.write(item.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
            await writer.drain()
    return "takes no more messages"


async def _pass_on(received: Incoming, session: MemoryObjectSendStream[SessionMessage | Exception]) -> str:
    with session, suppress(anyio.BrokenResourceError):
        async for item in received:
            if isinstance(item, Exception):
                return f"sent an answer that cannot be read ({type(item).__name__})"
            if _is_needed(item.message):
                await session.send(item)
    return "closed the connection"


def _is_needed(message: JSONRPCMessage) -> bool:
    root = message.root
    if isinstance(root, JSONRPCNotification):
        return False
    if isinstance(root, JSONRPCRequest):
        try:
            ServerRequest.model_validate(root.model_dump(by_alias=True, mode="json", exclude_none=True))
        except ValidationError:
            return False
        return True
    return isinstance(root.id, int) or root.id.isdecimal()


async def _last_words(scope: Scope) -> str:
    await _ended(scope)
    return scope.output.text[-_LAST_WORDS:]


async def _no_words() -> str:
    return ""


async def _leave(scope: Scope, writer: asyncio.StreamWriter) -> None:
    """Closes the server's input, by which it knows that it may go, and gives it a moment."""
    with suppress(OSError):
        writer.write_eof()
    await _ended(scope)


async def _ended(scope: Scope) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE):
            await scope.wait()


async def _end(scope: Scope, note: Callable[[str], None]) -> None:
    verdict = await scope.stop(Reason.OWNER_ENDED)
    if not verdict.contained:
        note(f"{scope.title}: containment lost ({verdict.reason}), processes may be left.")


class _BoundedBody(httpx.AsyncByteStream):
    """An answer's body that ends with an error instead of filling the memory."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body
        self._left = MAX_MESSAGE

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx.ReadError(f"an answer of more than {MAX_MESSAGE} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


async def _bound(response: httpx.Response) -> None:
    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _BoundedBody(response.stream)
