"""One place to run agents in: a workspace, a store, a scripted model over real HTTP, and programs that write heartbeats."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphs.client import open_checkrein
from graphs.service import Service
from graphs.settings import Settings
from nodes.context import AgentContext
from nodes.models.script import Script, ScriptedCall, ScriptedReply
from nodes.models.scripted import ScriptedModel

GUARD = 30.0
"""Seconds after which something hangs; nothing is measured with it."""

BEAT = """
import os, sys, time
folder = sys.argv[1]
with open(os.path.join(folder, "executions"), "a") as file:
    file.write("ran\\n")
if os.fork() == 0:
    os.setsid()
    with open(os.path.join(folder, "grandchild.pid.new"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join(folder, "grandchild.pid.new"), os.path.join(folder, "grandchild.pid"))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with open(os.path.join(folder, "heartbeat"), "a") as file:
            file.write("beat\\n")
        time.sleep(0.02)
    os._exit(0)
time.sleep(60)
"""
"""A command whose grandchild leaves its session and writes heartbeats; it ends by itself after a minute at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where a test's agent lives."""

    root: Path
    model: ScriptedModel
    settings: Settings

    @property
    def workspace(self) -> Path:
        """The agent's workspace."""
        return self.root / "workspace"

    @property
    def context(self) -> AgentContext:
        """The context of a manual run in the workspace."""
        return AgentContext(workspace=str(self.workspace), review_mode="manual")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of another process that works on the same store and endpoint."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "CHECKREIN_HOME": str(self.settings.home),
            "CHECKREIN_STORE": self.settings.store,
            "CHECKREIN_CONFIG": str(self.settings.config),
            "CHECKREIN_MODEL": self.settings.model,
            "CHECKREIN_BASE_URL": self.settings.base_url,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }

    @property
    def executions(self) -> int:
        """How often the heartbeat command has begun."""
        file = self.workspace / "executions"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def heartbeat_command(self) -> str:
        """The command line of the heartbeat program."""
        program = self.workspace / "beat.py"
        if not program.exists():
            program.write_text(BEAT)
        return f"{sys.executable} -S -E beat.py ."

    async def beating(self) -> int:
        """Waits until the grandchild writes heartbeats, and gives its pid."""
        async with asyncio.timeout(GUARD):
            while not ((self.workspace / "grandchild.pid").exists() and (self.workspace / "heartbeat").exists()):
                await asyncio.sleep(0.01)
        return int((self.workspace / "grandchild.pid").read_text())


@asynccontextmanager
async def scene(root: Path, replies: Sequence[ScriptedReply], store: str = "", **options: Any) -> AsyncIterator[Scene]:
    """A scene with a model that plays these replies; `options` go to the scripted model. Strict unless told otherwise.

    The store is a file of its own unless an address is given.
    """
    (root / "workspace").mkdir(exist_ok=True)
    async with ScriptedModel(Script(replies=tuple(replies)), **{"strict": True, **options}) as model:
        home = root / "state"
        settings = Settings(
            home=home,
            store=store or str(home / "checkrein.db"),
            model="scripted",
            base_url=model.base_url,
            key_name="",
            config=root / "checkrein.toml",
        )
        yield Scene(root=root, model=model, settings=settings)


@asynccontextmanager
async def opened(place: Scene) -> AsyncIterator[Service]:
    """A runtime over the scene's store."""
    async with open_checkrein(settings=place.settings) as service:
        yield service


def calls(*wanted: tuple[str, dict[str, Any]], text: str | None = None) -> ScriptedReply:
    """A reply that asks for tools."""
    return ScriptedReply(text=text, calls=tuple(ScriptedCall(name=name, arguments=arguments) for name, arguments in wanted))


def says(text: str) -> ScriptedReply:
    """A reply that ends the task."""
    return ScriptedReply(text=text)


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")
