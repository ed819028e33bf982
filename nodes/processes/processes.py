"""Every scope of one runtime: `Processes` starts them through one spawner and knows which ones are active."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self

from checkpoints.clock import fresh_id
from checkpoints.errors import UsageError
from nodes.processes.errors import ClosedError, SpawnerFailedError, StartFailedError
from nodes.processes.forkserver import wire
from nodes.processes.recovery import TAG
from nodes.processes.scope import Scope, UnbornError, outlast
from nodes.processes.scrubbing import Secrets
from nodes.processes.spawner_link import SpawnerLink
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Reason, Verdict

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Descriptors that a command gets as its streams. They stay the caller's, who closes them after the start.

    Attributes:
        stdin: Standard input, in place of the spec's.
        stdout: Standard output; standard error alone is then the scope's output.
    """

    stdin: int | None = None
    stdout: int | None = None


OWN_STREAMS = Streams()
"""Standard input as the spec says, both outputs in the scope's output."""


class Processes:
    """The scopes of one runtime. Belongs to one event loop; `close` it, or use it as an async context manager.

    The spawner starts with the first scope, and again when somebody killed it.

    Args:
        secrets: What is taken out of the output of every scope, before anything of it is kept.
    """

    def __init__(self, secrets: Secrets | None = None) -> None:
        self.secrets = secrets or Secrets()
        self._executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="checkrein-processes")
        self._link: asyncio.Task[SpawnerLink] | None = None
        self._active: dict[str, Scope] = {}
        self._report: dict[str, Any] | None = None
        self._last_words = ""
        self._closed = False

    @property
    def active(self) -> tuple[Scope, ...]:
        """The scopes that have no verdict yet, oldest first."""
        return tuple(self._active.values())

    async def start(self, spec: ScopeSpec, streams: Streams = OWN_STREAMS) -> Scope:
        """Starts a scope and returns once its command has been executed.

        A cancellation while it starts leaves nothing behind: it goes through after the scope's verdict.

        Args:
            spec: What to run.
            streams: The caller's own ends for standard input and output, for a program that is talked to (a server of
                tools): such a stream is not part of the scope's output.

        Raises:
            ProcessesError: Nothing was started; which one says why.
            UsageError: The spec cannot be meant.
        """
        _check(spec)
        for _ in range(_ATTEMPTS):
            link = await self._spawner()
            scope = await self._open(link, spec, streams)
            if scope is None:
                continue
            try:
                await scope.begun()
            except UnbornError:
                await self._forget(link)
                continue
            except asyncio.CancelledError:
                await scope.stop(Reason.CANCEL)
                raise
            return scope
        raise SpawnerFailedError(f"it ended {_ATTEMPTS} times before it could start a command; {self._last_words}")

    async def run(self, spec: ScopeSpec) -> tuple[Scope, Verdict]:
        """Starts a scope in the foreground and waits for its end.

        A cancellation stops it, waits for the verdict however often it is repeated, and then goes through.
        """
        scope = await self.start(spec)
        try:
            return scope, await scope.wait()
        finally:
            await scope.stop(Reason.CANCEL)

    async def containment(self) -> dict[str, Any]:
        """What this machine and user can do, probed once in a throw-away child; plain JSON."""
        if self._report is None:
            for _ in range(_ATTEMPTS):
                link = await self._spawner()
                self._report = await self._probe(link)
                if self._report is not None:
                    break
            else:
                raise SpawnerFailedError(f"it ended before it could say what this machine can do; {self._last_words}")
        return self._report

    async def close(self) -> None:
        """Stops every scope, ends the spawner, and waits for both. A cancellation goes through afterwards."""
        self._closed = True
        closing = asyncio.get_running_loop().create_task(self._close(), name="close of processes")
        await outlast(closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _close(self) -> None:
        await asyncio.gather(*(scope.stop(Reason.OWNER_ENDED) for scope in self.active))
        if self._link is not None:
            await asyncio.wait([self._link])
            if self._link.exception() is None:
                await self._link.result().gone(self._executor)
        self._executor.shutdown(wait=False)

    async def _spawner(self) -> SpawnerLink:
        if self._closed:
            raise ClosedError
        if self._link is None or (self._link.done() and (self._link.cancelled() or self._link.exception())):
            self._link = asyncio.get_running_loop().create_task(self._launch(), name="start of the spawner")
        return await asyncio.shield(self._link)

    async def _launch(self) -> SpawnerLink:
        return await asyncio.get_running_loop().run_in_executor(self._executor, SpawnerLink.start)

    async def _forget(self, link: SpawnerLink) -> None:
        if self._link is not None and self._link.done() and self._link.result() is link:
            self._link = None
            self._last_words = link.last_words() or "it said nothing"
            await link.gone(self._executor)

    async def _open(self, link: SpawnerLink, spec: ScopeSpec, streams: Streams) -> Scope | None:
        """Sends the request. None: the spawner is gone, and nothing began."""
        with ExitStack() as lent:
            scope, descriptors = self._prepare(lent, spec, streams)
            try:
                sent = await link.send(wire.START, descriptors)
            except asyncio.CancelledError:
                lent.close()
                await scope.stop(Reason.CANCEL)
                raise
        if sent:
            return scope
        await scope.wait()
        await self._forget(link)
        return None

    def _prepare(self, lent: ExitStack, spec: ScopeSpec, streams: Streams) -> tuple[Scope, list[int]]:
        tag = fresh_id()
        request = _request(spec, tag, asyncio.get_running_loop().time())
        try:
            with ExitStack() as kept:
                read, write = os.pipe()
                kept.callback(os.close, read)
                lent.callback(os.close, write)
                ours, theirs = socket.socketpair()
                kept.enter_context(ours)
                lent.enter_context(theirs)
                body = _hold(lent, wire.pack_body(request))
                stdin = _hold(lent, _stdin(spec.stdin)) if streams.stdin is None else streams.stdin
                kept.pop_all()
        except OSError as error:
            raise StartFailedError(error.strerror or str(error)) from error
        ours.setblocking(False)
        scope = Scope(spec, tag, ours, read, self.secrets.scrubber(), self._executor, self._drop)
        self._active[tag] = scope
        stdout = write if streams.stdout is None else streams.stdout
        return scope, [body, stdin, stdout, write, theirs.fileno()]

    def _drop(self, scope: Scope) -> None:
        self._active.pop(scope.identity.tag, None)

    async def _probe(self, link: SpawnerLink) -> dict[str, Any] | None:
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                sent = await link.send(wire.PROBE, [theirs.fileno()])
            answer = b""
            while sent and not answer.endswith(b"\n"):
                part = await asyncio.get_running_loop().sock_recv(ours, 65536)
                if not part:
                    break
                answer += part
        if not answer.endswith(b"\n"):
            await self._forget(link)
            return None
        report: dict[str, Any] = json.loads(answer)
        return report


def _check(spec: ScopeSpec) -> None:
    if not spec.argv or not spec.argv[0]:
        raise UsageError("A scope needs a program to run.")
    if not PurePath(spec.cwd).is_absolute():
        raise UsageError(f"The working folder must be absolute, not {spec.cwd!r}.")


def _request(spec: ScopeSpec, tag: str, now: float) -> dict[str, Any]:
    # The deadline is an instant of the machine's monotonic clock, which runtime and guard share.
    return {
        "argv": list(spec.argv),
        "cwd": spec.cwd,
        "env": {**spec.env, TAG: tag},
        "deadline": None if spec.timeout is None else now + spec.timeout,
        "containment": spec.containment,
        "linger": spec.linger,
        "confinement": None if spec.confinement is None else asdict(spec.confinement),
    }


def _hold(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _stdin(content: bytes | None) -> int:
    if content is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    return wire.pack_bytes(content, "checkrein-stdin")
