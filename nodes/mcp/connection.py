"""One life of a server: started, introduced, asked, ended. It lives in a task of its own, never in a run's."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import anyio
import mcp.types as protocol
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, McpError

from checkpoints.errors import CheckreinError
from nodes.display import escape_line
from nodes.mcp.errors import ServerUnavailableError
from nodes.mcp.links import Link
from nodes.mcp.listings import Listed

STOP_BUDGET = 3.0
"""Seconds that an HTTP server may take to end the session; then it is left to itself."""

_SHOWN = 300
_SHOWN_LINES = 3


class Session(ClientSession):
    """A session that says under which id its next request goes out: withdrawing a request takes its id."""

    @property
    def next_id(self) -> int:
        """The id of the next request."""
        return self._request_id


class Request:
    """One call that is under way.

    Attributes:
        answer: Done when the server has answered; the caller cancels it when nobody waits any more.
    """

    def __init__(self, session: Session, tool: str, arguments: dict[str, Any]) -> None:
        self._session = session
        self._id: int | None = None
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Task[protocol.CallToolResult] = loop.create_task(
            self._ask(tool, arguments), name=f"MCP call of {tool[:_SHOWN]}"
        )
        self.answer.add_done_callback(_seen)

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> protocol.CallToolResult:
        # Not ClientSession.call_tool: that one holds answers against a schema of the server's, unbounded and on the loop.
        params = protocol.CallToolRequestParams(name=tool, arguments=arguments)
        request = protocol.ClientRequest(protocol.CallToolRequest(params=params))
        self._id = self._session.next_id
        return await self._session.send_request(request, protocol.CallToolResult)

    async def withdraw(self, within: float) -> bool:
        """Tells the server that nobody wants the answer any more.

        Args:
            within: Seconds to wait for the server's word that it has stopped.

        Returns:
            Whether the call is known to be over. Otherwise it may still run.
        """
        with suppress(TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with asyncio.timeout(within):
                if self._id is not None and not self.answer.done():
                    params = protocol.CancelledNotificationParams(requestId=self._id, reason="nobody waits for it any more")
                    note = protocol.CancelledNotification(params=params)
                    await self._session.send_notification(protocol.ClientNotification(note))
                    await asyncio.wait([self.answer])
        over = self.answer.done() or self._id is None
        self.answer.cancel()
        return over


class Connection:
    """One life of one server. Whoever makes it has to `stop` it.

    Attributes:
        life: The task in which it lives; done when nothing of it is left.
    """

    def __init__(self, server: str, link: AbstractAsyncContextManager[Link], start_timeout: float) -> None:
        self._server = server
        self._start_timeout = start_timeout
        self._leaving = asyncio.Event()
        self._over = False
        self._reason = ""
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[tuple[Session, tuple[Listed, ...]]] = loop.create_future()
        self.life = loop.create_task(self._live(link), name=f"MCP server {server}")
        self.life.add_done_callback(_seen)

    @property
    def usable(self) -> bool:
        """Whether a call may still be sent into it."""
        return not self.life.done() and not self._leaving.is_set() and not self._over

    async def ready(self) -> tuple[Session, tuple[Listed, ...]]:
        """The session and the server's tools, once it has started.

        Raises:
            ServerUnavailableError: It does not start, or not in time.
        """
        either: list[asyncio.Future[Any]] = [self._ready, self.life]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            raise ServerUnavailableError(self._server, f"could not be used: it {self.reason()}")
        return self._ready.result()

    def reason(self) -> str:
        """Why it ended, a phrase with the server as its subject; safe to show."""
        if self._leaving.is_set():
            return "was stopped"
        if self._reason or not self.life.done() or self.life.cancelled():
            return self._reason or "ended"
        error = self.life.exception()
        return _phrase(error) if error else "ended"

    async def stop(self) -> None:
        """Ends the server and waits until it is gone. Bounded; may be called often."""
        self._leaving.set()
        if self._ready.done():
            await asyncio.wait([self.life], timeout=STOP_BUDGET)
        self.life.cancel()
        await asyncio.wait([self.life])

    async def _live(self, link: AbstractAsyncContextManager[Link]) -> None:
        async with link as opened, Session(opened.incoming, opened.outgoing) as session:
            self._ready.set_result((session, await self._introduced(opened, session)))
            leaving = asyncio.get_running_loop().create_task(self._leaving.wait(), name=f"end of MCP server {self._server}")
            either: list[asyncio.Future[Any]] = [leaving, opened.ended]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaving.cancel()
            if not self._leaving.is_set():
                self._over = True
                self._reason = opened.ended.result() + await _quoted(opened)

    async def _introduced(self, opened: Link, session: Session) -> tuple[Listed, ...]:
        try:
            async with asyncio.timeout(self._start_timeout):
                await session.initialize()
                tools = await load_mcp_tools(session)
        except TimeoutError:
            self._reason = f"did not start within {self._start_timeout:g} s{await _quoted(opened)}"
            raise
        except McpError as error:
            if error.error.code == protocol.CONNECTION_CLOSED and opened.ended.done():
                self._reason = opened.ended.result() + await _quoted(opened)
            raise
        return tuple(Listed(name=tool.name, description=tool.description, schema=_schema(tool)) for tool in tools)


def _schema(tool: BaseTool) -> dict[str, Any]:
    """A tool's schema as the server sent it: the adapter passes it on unread."""
    return tool.args_schema if isinstance(tool.args_schema, dict) else {}


async def _quoted(opened: Link) -> str:
    words = escape_line(" / ".join((await opened.last_words()).strip().splitlines()[-_SHOWN_LINES:])[-_SHOWN:])
    return f" (it said: {words})" if words else ""


def _phrase(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error) if isinstance(error, CheckreinError) else f"{type(error).__name__}: {error}"
    return f"failed with {escape_line(text[:_SHOWN])}"


def _seen(task: asyncio.Task[Any]) -> None:
    """Takes note of how a task ended: whoever waits for it hears it too, and nobody may be waiting."""
    if not task.cancelled():
        task.exception()
