"""The door to MCP servers: from the configuration to tools for the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nodes.configuration import Configuration, ServerTable
from nodes.mcp.errors import McpExtraMissingError
from nodes.mcp.ground import Ground
from nodes.processes.environment import child_environment
from nodes.processes.processes import Processes
from nodes.processes.spec import ScopeSpec
from nodes.tools.tool import Tool


@asynccontextmanager
async def open_mcp(configuration: Configuration, processes: Processes, ground: Ground) -> AsyncIterator[Sequence[Tool]]:
    """Gives the tools of the configured servers; every server is gone when the block is left.

    A server starts with the first call of one of its tools, or here, when what it offers is not known yet. One that cannot be
    started gives a note and no tools; one that ends is started again by the next call. Without servers nothing is
    loaded, and the client library only with the first server that starts.

    Args:
        configuration: The user's configuration.
        processes: Where servers are started; closes after this block.
        ground: What they are started with.

    Raises:
        McpExtraMissingError: Servers are configured and the extra is not installed.
    """
    tables = configuration.servers()
    if not tables:
        yield ()
        return

    async def start(name: str, table: ServerTable) -> Any:
        make = await asyncio.to_thread(_client)
        return make(name, table, processes, _spec(name, table, configuration, ground), ground.note)

    servers = (await asyncio.to_thread(_servers))(tables, ground, start)
    _say_what_is_not_set(tables, ground)
    try:
        yield await servers.tools()
    finally:
        await servers.close()


def _spec(name: str, table: ServerTable, configuration: Configuration, ground: Ground) -> ScopeSpec:
    rules = table.confinement or configuration.confinement
    named = {variable: ground.environment[variable] for variable in table.env_names if variable in ground.environment}
    return ScopeSpec(
        argv=table.command,
        cwd=str(ground.folder),
        env=child_environment(ground.environment, extra=named),
        confinement=rules.within(ground.folder, ground.home, ground.store),
        title=f"MCP server {name}",
    )


def _say_what_is_not_set(tables: Mapping[str, ServerTable], ground: Ground) -> None:
    for name, table in tables.items():
        for variable in table.env_names:
            if variable not in ground.environment:
                ground.note(f"The MCP server {name} is to get {variable}, which is not set.")


def _servers() -> Any:
    try:
        # Imports in functions, here and below: both are of the extra, and the client takes most of a second to load.
        from nodes.mcp.servers import Servers
    except ImportError as error:
        raise McpExtraMissingError from error
    return Servers


def _client() -> Any:
    try:
        from nodes.mcp.server import server_of
    except ImportError as error:
        raise McpExtraMissingError from error
    return server_of
