"""The command line as a user has it: a real process with a home, a store and a workspace of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GUARD_SECONDS = 60.0


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert self.out == "" or self.out.endswith("\n")
        return [json.loads(line) for line in self.out.split("\n")[:-1]]

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]


class Checkrein:
    """Starts commands."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "state"
        self.workspace = folder / "workspace"
        for path in (self.home, self.workspace):
            path.mkdir()
        self.store = self.home / "checkrein.db"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CHECKREIN_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
        }

    async def start(self, *words: str, **environment: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "graphs.cli",
            *words,
            cwd=self.workspace,
            env={**self.environment, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**24,
        )

    async def __call__(self, *words: str, typed: bytes = b"", **environment: str) -> Done:
        return await finished(await self.start(*words, **environment), typed)


async def finished(process: asyncio.subprocess.Process, typed: bytes = b"") -> Done:
    """Waits for the end. The process is killed when the guard time is over, so that nothing is left behind."""
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            out, err = await process.communicate(typed)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Done(process.returncode, out.decode(), err.decode())
