"""The command line as a user has it: a real process with a home, a store and a workspace of its own.

A process may be started cold, by the interpreter, or warm: forked from a server that has imported the command's modules once,
which saves the two seconds that they take. Both run `graphs.cli.main` over real pipes in an environment of their own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from graphs.cli import main

ROOT = Path(__file__).parents[2]
GUARD_SECONDS = 60.0

_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(["graphs.cli.on_pipe", "tests.cli.command"])


@dataclass(frozen=True)
class Done:
    """A command that has ended. Status as a shell counts it; negative for the signal that killed it."""

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


class Running:
    """A warm command that runs. Must be awaited with `end` or `killed`."""

    def __init__(self, process: BaseProcess, ends: tuple[int, int, int]) -> None:
        self._process = process
        self._stdin, self._stdout, self._stderr = ends
        self._out = b""

    def send(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    async def line(self, kind: str) -> dict[str, Any]:
        """Waits for the next line of a kind."""
        async with asyncio.timeout(GUARD_SECONDS):
            while True:
                text = await asyncio.to_thread(self._next_line)
                assert text, f"the command ended before a line of kind {kind}"
                if json.loads(text)["kind"] == kind:
                    return dict(json.loads(text))

    async def end(self, typed: bytes = b"") -> Done:
        """Types, and reads what is still to come to the end."""
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                _, out, err = await asyncio.gather(
                    asyncio.to_thread(_write, self._stdin, typed),
                    asyncio.to_thread(_read, self._stdout),
                    asyncio.to_thread(_read, self._stderr),
                )
                await asyncio.to_thread(self._process.join)
        except TimeoutError:
            self._process.kill()
            raise
        assert b"Traceback" not in err, err.decode()
        status = self._process.exitcode
        assert status is not None
        return Done(status, (self._out + out).decode(), err.decode())

    def stop_reading(self) -> None:
        """Closes the reading end of the command's output."""
        os.close(self._stdout)
        self._stdout = os.open(os.devnull, os.O_RDONLY)

    async def killed(self) -> None:
        """Kills it and waits."""
        self._process.kill()
        await self.end()

    def _next_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._stdout, 1)
            if not part:
                return b""
            line += part
        self._out += line
        return line


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
            "TMPDIR": str(folder),
            "CHECKREIN_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
        }

    async def __call__(self, *words: str, typed: bytes = b"", **environment: str) -> Done:
        return await self.start(*words, **environment).end(typed)

    def start(self, *words: str, **environment: str) -> Running:
        """Starts a warm command."""
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
        arguments = (words, {**self.environment, **environment}, str(self.workspace))
        process = _WARM.Process(target=_main, args=(*arguments, *map(DupFd, (stdin, stdout, stderr))))
        process.start()
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        return Running(process, (to_stdin, from_stdout, from_stderr))

    async def cold(self, *words: str) -> Done:
        """Runs a command in an interpreter of its own."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "graphs.cli", *words),
            cwd=self.workspace,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())


def _main(words: tuple[str, ...], environment: Mapping[str, str], folder: str, *streams: Any) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream.detach(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0, encoding="utf-8"), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.exit(main(words))


def _write(descriptor: int, text: bytes) -> None:
    with open(descriptor, "wb") as stream:
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            pass


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()
