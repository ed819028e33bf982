"""The door to MCP servers: from the configuration to tools for the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nodes.configuration import Configuration, ServerTable
from nodes.mcp.errors import McpExtraMissingError
from nodes.mcp.ground import Ground
from nodes.processes.processes import Processes
from nodes.processes.spec import Confinement
from nodes.tools.tool import Tool


@asynccontextmanager
async def open_mcp(configuration: Configuration, processes: Processes, ground: Ground) -> AsyncIterator[Sequence[Tool]]:
    """Starts the configured servers and gives their tools; every server is gone when the block is left.

    A server that cannot be started gives a note and no tools. One that ends later is started again by the next call. With no
    server configured nothing is loaded and nothing starts.

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

    def confine(table: ServerTable) -> Confinement | None:
        rules = table.confinement or configuration.confinement
        return rules.within(ground.folder, ground.home, ground.store)

    for name, table in tables.items():
        for variable in table.env_names:
            if variable not in ground.environment:
                ground.note(f"The MCP server {name} is to get {variable}, which is not set.")
    servers = (await asyncio.to_thread(_library))(tables, processes, ground, confine)
    try:
        yield await servers.tools()
    finally:
        await servers.close()


def _library() -> Any:
    try:
        # The one import in a function: the client library is an extra and takes most of a second to load.
        from nodes.mcp.servers import Servers
    except ImportError as error:
        raise McpExtraMissingError from error
    return Servers
