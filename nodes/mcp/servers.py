"""The configured servers of one runtime and the tools that they become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from checkpoints.clock import fresh_id
from nodes.configuration import ServerTable
from nodes.display import shown
from nodes.mcp.connection import Listed
from nodes.mcp.errors import McpServerError, SchemaRefusedError
from nodes.mcp.ground import Ground
from nodes.mcp.links import Link, http_link, stdio_link
from nodes.mcp.naming import tool_name
from nodes.mcp.results import result_of
from nodes.mcp.schemas import SchemaArguments, arguments_model
from nodes.mcp.server import Server
from nodes.processes.environment import child_environment
from nodes.processes.processes import Processes
from nodes.processes.spec import Confinement, ScopeSpec
from nodes.tools.tool import CallSite, Effect, Tool, ToolResult

MAX_TOOLS = 128
"""Tools of one server: every one of them is in every request to the model."""

MAX_DESCRIPTION = 2_000
"""Characters of a tool's description."""

Confine = Callable[[ServerTable], Confinement | None]


class Servers:
    """The servers. `close` them."""

    def __init__(self, tables: Mapping[str, ServerTable], processes: Processes, ground: Ground, confine: Confine) -> None:
        self._tables = tables
        self._ground = ground
        self._servers = {
            name: Server(
                name,
                _link(name, table, processes, ground, confine),
                timeout=table.timeout,
                start_timeout=table.start_timeout,
            )
            for name, table in tables.items()
        }

    async def tools(self) -> tuple[Tool, ...]:
        """Starts every server at the same time and gives the tools of those that answer, in the order of the configuration."""
        found = await asyncio.gather(*(self._tools_of(server) for server in self._servers.values()))
        return tuple(tool for tools in found for tool in tools)

    async def close(self) -> None:
        """Stops every server and waits for them."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def _tools_of(self, server: Server) -> Sequence[Tool]:
        try:
            listed = await server.tools()
        except McpServerError as error:
            self._ground.note(f"{error} Its tools are missing.")
            return ()
        if len(listed) > MAX_TOOLS:
            self._ground.note(f"The MCP server {server.name} has {len(listed)} tools; the first {MAX_TOOLS} are used.")
        return list(self._usable(server, listed[:MAX_TOOLS]))

    def _usable(self, server: Server, listed: Sequence[Listed]) -> Iterator[Tool]:
        names: set[str] = set()
        for entry in listed:
            name = tool_name(server.name, entry.name)
            if name in names:
                self._ground.note(f"The MCP server {server.name} lists {name} more than once; the first one is used.")
                continue
            names.add(name)
            try:
                yield self._tool(server, name, entry)
            except SchemaRefusedError as error:
                self._ground.note(f"{name} is left out. {error}")

    def _tool(self, server: Server, name: str, entry: Listed) -> Tool:
        return Tool(
            name=name,
            description=_described(server.name, entry.description),
            arguments=arguments_model(name, entry.schema),
            effect=Effect(self._tables[server.name].effects.get(entry.name, Effect.OUTSIDE.value)),
            run=_runner(server, entry.name, self._ground.spill),
        )


def _runner(server: Server, tool: str, spill: Path) -> Callable[[SchemaArguments, CallSite], Awaitable[ToolResult]]:
    async def run(arguments: SchemaArguments, site: CallSite) -> ToolResult:
        try:
            answer = await server.call(tool, arguments.model_dump(mode="json"))
        except McpServerError as error:
            site.emit("mcp.failed", tool_call_id=site.call_id, server=server.name, reason=str(error))
            return ToolResult(
                content=f"{error} {error.hint}".strip(), is_error=True, details={"server": server.name, "tool": tool}
            )
        return await asyncio.to_thread(result_of, server.name, tool, answer, spill / f"mcp-{fresh_id()}.out")

    return run


def _described(server: str, description: str) -> str:
    """What the model reads: the server's words, cut, with nothing in them that a person would not see."""
    words = shown(description[:MAX_DESCRIPTION]).text.strip()
    return f"{words or 'No description.'} (Tool of the MCP server {server}.)"


def _link(
    name: str, table: ServerTable, processes: Processes, ground: Ground, confine: Confine
) -> Callable[[], AbstractAsyncContextManager[Link]]:
    if table.url:
        return lambda: http_link(table.url, table.timeout)
    named = {variable: ground.environment[variable] for variable in table.env_names if variable in ground.environment}
    spec = ScopeSpec(
        argv=table.command,
        cwd=str(ground.folder),
        env=child_environment(ground.environment, extra=named),
        confinement=confine(table),
        title=f"MCP server {name}",
    )
    return lambda: stdio_link(processes, spec, ground.note)
