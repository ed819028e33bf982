"""Servers for the tests: the real one of `program.py` and the hand-made ones of `hostile.py`, as tools of one runtime."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodes.configuration import Configuration
from nodes.mcp.ground import Ground
from nodes.mcp.opening import open_mcp
from nodes.processes.processes import Processes
from nodes.tools.tool import CallSite, Tool, ToolResult
from tests.runs.scene import GUARD, alive

HERE = Path(__file__).parent


def stdio(folder: Path, **options: Any) -> dict[str, Any]:
    """The table of the real server over its standard streams."""
    return {"command": [sys.executable, str(HERE / "program.py"), "stdio", str(folder)], **options}


def hostile(behaviour: str, **options: Any) -> dict[str, Any]:
    """The table of a server that misbehaves; `hostile.py` says how."""
    return {"command": [sys.executable, "-S", "-E", str(HERE / "hostile.py"), behaviour], **options}


@contextmanager
def http(folder: Path) -> Iterator[dict[str, Any]]:
    """The table of the real server over HTTP, started by somebody else."""
    port_file = folder / "port"
    command = [sys.executable, str(HERE / "program.py"), "http", str(folder), str(port_file)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        for _ in range(int(GUARD * 100)):
            if port_file.exists() or process.poll() is not None:
                break
            subprocess.run(["sleep", "0.01"], check=True)
        yield {"url": f"http://127.0.0.1:{port_file.read_text()}/mcp"}
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Tools of servers, and what was said about them."""

    folder: Path
    tools: Sequence[Tool]
    processes: Processes
    notes: list[str]
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tool(self, name: str) -> Tool:
        """A tool by its name here."""
        return {tool.name: tool for tool in self.tools}[name]

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Calls a tool as the tool step does."""
        tool = self.tool(name)
        assert tool.run is not None
        return await tool.run(tool.arguments.model_validate(arguments), self._site())

    def _site(self) -> CallSite:
        return CallSite(
            call_id="call-1",
            thread_id="thread",
            run_id="run",
            owner="run",
            session="",
            workspace=str(self.folder),
            deadline=None,
            emit=lambda kind, /, **payload: self.events.append((kind, payload)),
        )


@asynccontextmanager
async def offered(
    folder: Path, servers: dict[str, Any], *, listings: Path | None = None, environment: dict[str, str] | None = None
) -> AsyncIterator[Bench]:
    """The tools of these servers; asserts on the way out that no process is left."""
    notes: list[str] = []
    ground = Ground(
        folder=folder,
        home=folder / "home",
        store=(folder.parent / "state",),
        spill=folder / "spill",
        environment={**os.environ, **(environment or {})},
        note=notes.append,
        listings=listings,
    )
    configuration = Configuration.model_validate({"mcp": {"servers": servers}})
    async with Processes() as processes:
        async with open_mcp(configuration, processes, ground) as tools:
            yield Bench(folder=folder, tools=tools, processes=processes, notes=notes)
        assert processes.active == ()


def server_pids(folder: Path) -> list[int]:
    """The process of every start of the real server."""
    return [int(line) for line in (folder / "server.pid").read_text().splitlines()]


async def written(file: Path) -> str:
    """Waits until a file has a whole line, and gives it."""
    async with asyncio.timeout(GUARD):
        while not (file.exists() and file.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return file.read_text().strip()


async def gone(pid: int) -> None:
    """Waits until a process is gone."""
    async with asyncio.timeout(GUARD):
        while alive(pid):
            await asyncio.sleep(0.01)
