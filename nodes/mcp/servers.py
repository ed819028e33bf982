"""The configured servers of one runtime and the tools that they become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from checkpoints.clock import fresh_id
from nodes.configuration import ServerTable
from nodes.display import shown
from nodes.mcp.errors import McpExtraMissingError, McpServerError, SchemaRefusedError, ToolChangedError
from nodes.mcp.ground import Ground
from nodes.mcp.listings import Listed, Listings
from nodes.mcp.naming import tool_name
from nodes.mcp.schemas import SchemaArguments, arguments_model
from nodes.tools.tool import CallSite, Effect, Tool, ToolResult

MAX_TOOLS = 128
"""Tools of one server: every one of them is in every request to the model."""

MAX_DESCRIPTION = 2_000
"""Characters of a tool's description."""


class Served(Protocol):
    """One server, which runs when it is needed; see `nodes.mcp.server`."""

    async def tools(self) -> tuple[Listed, ...]:
        """What it offers."""

    async def call(self, entry: Listed, arguments: dict[str, Any], full: Path) -> ToolResult:
        """Calls one of its tools."""

    async def close(self) -> None:
        """Stops it."""


Start = Callable[[str, ServerTable], Awaitable[Served]]


class Servers:
    """The servers. `close` them.

    Args:
        tables: The configuration of each.
        ground: What they are started with.
        start: Makes a server; called when it is first needed.
    """

    def __init__(self, tables: Mapping[str, ServerTable], ground: Ground, start: Start) -> None:
        self._tables = tables
        self._ground = ground
        self._start = start
        self._listings = Listings(ground.listings)
        self._servers: dict[str, Served] = {}

    async def tools(self) -> tuple[Tool, ...]:
        """The tools of every server, in the order of the configuration.

        Servers whose tools are not known are started, all at the same time; the others start with the first call.

        Raises:
            McpExtraMissingError: A server has to be started and the extra is not installed.
        """
        found = await asyncio.gather(*(self._tools_of(name, table) for name, table in self._tables.items()))
        return tuple(tool for tools in found for tool in tools)

    async def close(self) -> None:
        """Stops every server and waits for them."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _server(self, name: str) -> Served:
        if name not in self._servers:
            made = await self._start(name, self._tables[name])
            return self._servers.setdefault(name, made)
        return self._servers[name]

    async def _tools_of(self, name: str, table: ServerTable) -> Sequence[Tool]:
        listed = await asyncio.to_thread(self._listings.known, name, table)
        if listed is None:
            try:
                listed = await (await self._server(name)).tools()
            except McpServerError as error:
                self._ground.note(f"{error} Its tools are missing.")
                return ()
            await asyncio.to_thread(self._listings.keep, name, table, listed)
        if len(listed) > MAX_TOOLS:
            self._ground.note(f"The MCP server {name} has {len(listed)} tools; the first {MAX_TOOLS} are used.")
        return list(self._usable(name, listed[:MAX_TOOLS]))

    def _usable(self, server: str, listed: Sequence[Listed]) -> Iterator[Tool]:
        names: set[str] = set()
        for entry in listed:
            name = tool_name(server, entry.name)
            if name in names:
                self._ground.note(f"The MCP server {server} lists {name} more than once; the first one is used.")
                continue
            names.add(name)
            try:
                yield self._tool(server, name, entry)
            except SchemaRefusedError as error:
                self._ground.note(f"{name} is left out. {error}")

    def _tool(self, server: str, name: str, entry: Listed) -> Tool:
        async def run(arguments: SchemaArguments, site: CallSite) -> ToolResult:
            return await self._call(server, entry, arguments, site)

        return Tool(
            name=name,
            description=_described(server, entry.description),
            arguments=arguments_model(name, entry.schema),
            effect=Effect(self._tables[server].effects.get(entry.name, Effect.OUTSIDE.value)),
            run=run,
        )

    async def _call(self, server: str, entry: Listed, arguments: SchemaArguments, site: CallSite) -> ToolResult:
        full = self._ground.spill / f"mcp-{fresh_id()}.out"
        try:
            return await (await self._server(server)).call(entry, arguments.model_dump(mode="json"), full)
        except (McpServerError, McpExtraMissingError) as error:
            if isinstance(error, ToolChangedError):
                await asyncio.to_thread(self._listings.forget, server)
            site.emit("mcp.failed", tool_call_id=site.call_id, server=server, reason=str(error))
            details = {"server": server, "tool": entry.name}
            return ToolResult(content=f"{error} {error.hint}".strip(), is_error=True, details=details)


def _described(server: str, description: str) -> str:
    """What the model reads: the server's words, cut, with nothing in them that a person would not see."""
    words = shown(description[:MAX_DESCRIPTION]).text.strip()
    return f"{words or 'No description.'} (Tool of the MCP server {server}.)"
