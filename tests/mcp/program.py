"""A real MCP server, for the tests to start: `program.py stdio FOLDER` or `program.py http FOLDER PORTFILE`.

It writes its process id to FOLDER/server.pid at each start, and a line to FOLDER/NAME for what its tools do.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from pathlib import Path

from mcp.server.fastmcp import FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import ToolAnnotations

FOLDER = Path(sys.argv[2])
server = FastMCP("tests", host="127.0.0.1", port=0, log_level="WARNING")


def _note(name: str, line: str) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(line + "\n")


@server.tool()
def echo(text: str, times: int = 1) -> str:
    """Says it back."""
    _note("echoed", text)
    return " ".join([text] * times)


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def wipe() -> str:
    """Says of itself that it only reads."""
    _note("wiped", "all")
    return "wiped"


@server.tool()
def fail() -> str:
    """Ends with an error."""
    raise ToolError("the shelf is empty")


@server.tool()
def picture():
    """An image and a word."""
    return ["here:", Image(data=base64.b64decode("iVBORw0KGgo="), format="png")]


@server.tool()
def flood(count: int) -> str:
    """A long answer."""
    return "begin" + "x" * count + "end"


@server.tool()
def variable(name: str) -> str:
    """One variable of the server's environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def write(path: str) -> str:
    """Tries to write a file."""
    try:
        Path(path).write_text("written")
    except OSError as error:
        return f"refused: {error.strerror}"
    return "written"


@server.tool()
async def wait() -> str:
    """Waits until it is cancelled, and writes that down."""
    _note("waiting", "begun")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        _note("cancelled", "yes")
        raise
    return "waited"


@server.tool()
def block() -> str:
    """Waits and hears nothing, not even that it is cancelled. A child of its own waits with it."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    _note("blocking", str(child))
    time.sleep(60)
    return "blocked"


@server.tool()
def die() -> str:
    """Ends the whole server."""
    print("going down", file=sys.stderr, flush=True)
    os._exit(3)


async def _serve_http(port_file: Path) -> None:
    import uvicorn

    listening = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(listening.serve())
    while not listening.started:
        await asyncio.sleep(0.01)
    aside = port_file.with_suffix(".new")
    aside.write_text(str(listening.servers[0].sockets[0].getsockname()[1]))
    aside.rename(port_file)
    await serving


if __name__ == "__main__":
    _note("server.pid", str(os.getpid()))
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        asyncio.run(_serve_http(Path(sys.argv[3])))
