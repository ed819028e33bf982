"""A configured server over its lives: started when it is needed, started again after it ended, gone when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
from mcp import McpError
from mcp.types import CONNECTION_CLOSED, CallToolResult

from nodes.configuration import ServerTable
from nodes.display import escape_line
from nodes.mcp.connection import STOP_BUDGET, Connection, Request
from nodes.mcp.errors import CallTimedOutError, McpServerError, ServerLostError, ServerUnavailableError, ToolChangedError
from nodes.mcp.links import Link, http_link, stdio_link
from nodes.mcp.listings import Listed
from nodes.mcp.results import result_of
from nodes.processes.processes import Processes
from nodes.processes.scope import outlast
from nodes.processes.spec import ScopeSpec
from nodes.tools.tool import ToolResult

GRACE = 0.5
"""Seconds that a server has to say that it stopped a withdrawn call. One that says nothing is stopped itself."""

_SHOWN = 2_000
_SHOWN_NAME = 100


class Server:
    """One server. Belongs to one event loop; `close` it."""

    def __init__(
        self,
        name: str,
        link: Callable[[], AbstractAsyncContextManager[Link]],
        *,
        timeout: float,
        start_timeout: float,
    ) -> None:
        self.name = name
        self._link = link
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._connection: Connection | None = None
        self._withdrawing: set[asyncio.Task[bool]] = set()
        self._closed = False

    async def tools(self) -> tuple[Listed, ...]:
        """What it offers. Starts it where it does not run.

        Raises:
            ServerUnavailableError: It cannot be started.
        """
        _, listed = await (await self._running()).ready()
        return listed

    async def call(self, entry: Listed, arguments: dict[str, Any], full: Path) -> ToolResult:
        """Calls one tool. Starts the server where it does not run.

        A cancellation withdraws the call at the server, waits for its word, and goes through; a server that gives none is
        stopped first, and every other call in it ends with `ServerLostError`.

        Args:
            entry: The tool as it was listed when people and the policy saw it.
            arguments: Validated arguments; JSON.
            full: Where an answer that is too long goes whole.

        Raises:
            McpServerError: There is no answer; which error says whether something ran.
        """
        connection = await self._running()
        session, listed = await connection.ready()
        tool = escape_line(entry.name[:_SHOWN_NAME])
        if entry not in listed:
            raise ToolChangedError(self.name, f"describes {tool} otherwise than before, or no longer")
        request = Request(session, entry.name, arguments)
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.wait([request.answer, connection.life], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            stopped = await self._withdraw(connection, request)
            ending = "and, as it did not stop the call either, was stopped" if stopped else "and stopped it when told to"
            raise CallTimedOutError(self.name, f"did not answer {tool} within {self._timeout:g} s {ending}") from None
        except asyncio.CancelledError:
            await self._withdraw(connection, request)
            raise
        if not request.answer.done():
            request.answer.cancel()
            raise ServerLostError(self.name, f"{connection.reason()} while {tool} ran")
        answer = await self._answer(connection, request, tool)
        return await asyncio.to_thread(result_of, self.name, tool, answer, full)

    async def _answer(self, connection: Connection, request: Request, tool: str) -> CallToolResult:
        try:
            return request.answer.result()
        except McpError as error:
            if error.error.code == CONNECTION_CLOSED:  # the library's word, said just before the connection's life ends
                await asyncio.wait([connection.life], timeout=STOP_BUDGET)
                if not connection.usable:
                    raise ServerLostError(self.name, f"{connection.reason()} while {tool} ran") from error
            raise McpServerError(self.name, f"refused {tool}: {escape_line(error.error.message[:_SHOWN])}") from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ServerUnavailableError(self.name, f"ended before {tool} could be called") from error
        except ValueError as error:
            raise McpServerError(self.name, f"answered {tool} with something that is no result") from error

    async def close(self) -> None:
        """Stops it and waits until it is gone. A cancellation goes through afterwards."""
        self._closed = True
        await outlast(_task(self._close(), f"close of MCP server {self.name}"))

    async def _close(self) -> None:
        if self._withdrawing:
            await asyncio.wait(self._withdrawing)
        if self._connection is not None:
            await self._connection.stop()

    async def _running(self) -> Connection:
        if self._closed:
            raise ServerUnavailableError(self.name, "was closed with its runtime")
        if self._connection is not None and not self._connection.usable:
            await asyncio.wait([self._connection.life])
        if self._connection is None or not self._connection.usable:
            self._connection = Connection(self.name, self._link(), self._start_timeout)
        return self._connection

    async def _withdraw(self, connection: Connection, request: Request) -> bool:
        """Ends a call that nobody waits for, in a task that outlives whoever is cut short here; whether by a stop."""
        task = _task(_end_call(connection, request), f"withdrawal in MCP server {self.name}")
        self._withdrawing.add(task)
        task.add_done_callback(self._withdrawing.discard)
        return await outlast(task)


async def _end_call(connection: Connection, request: Request) -> bool:
    if await request.withdraw(GRACE):
        return False
    await connection.stop()
    return True


def server_of(name: str, table: ServerTable, processes: Processes, spec: ScopeSpec, note: Callable[[str], None]) -> Server:
    """A server by its table. Nothing starts yet.

    Args:
        name: What it is called.
        table: Its configuration.
        processes: Where it is started, when it is one that is started.
        spec: How.
        note: Takes a sentence for people.
    """

    def link() -> AbstractAsyncContextManager[Link]:
        return http_link(table.url, table.timeout) if table.url else stdio_link(processes, spec, note)

    return Server(name, link, timeout=table.timeout, start_timeout=table.start_timeout)


def _task(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work, name=name)
