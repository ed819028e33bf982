"""One running scope as the runtime sees it: its lifeline, its output, its verdict."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar

from nodes.processes.errors import ProcessesError, StartUnknownError, failure_of
from nodes.processes.forkserver.tree import boot_id
from nodes.processes.forkserver.wire import Lines
from nodes.processes.output import LiveLines, Output
from nodes.processes.pump import Pump
from nodes.processes.recovery import end_recorded
from nodes.processes.scrubbing import Scrubber
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Identity, Reason, Rung, Verdict

STOP_BUDGET = 6.0
"""Seconds from a stop until a guard that says nothing counts as lost: the guard's own budget, and one for the way."""

_Answer = TypeVar("_Answer")


class UnbornError(ProcessesError):
    """The spawner ended before it made a guard: nothing began, and the start may be tried again."""

    code = "spawner_gone"


async def outlast(future: asyncio.Future[_Answer]) -> _Answer:
    """Waits for the future through any number of cancellations, then lets the first one through.

    Only for futures that are certain to be done in bounded time.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        raise cancelled
    return future.result()


class Scope:
    """A process tree that was started as one and ends as one. Made by `Processes.start`.

    Usable in the foreground (`wait`, and `stop` when cancelled; `Processes.run` does both right) and as a handle on
    background work: nothing needs to be awaited while it runs.
    """

    def __init__(
        self,
        spec: ScopeSpec,
        tag: str,
        control: socket.socket,
        output: int,
        scrubber: Scrubber,
        executor: Executor,
        ended: Callable[[Scope], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._executor = executor
        self._ended = ended
        self._lines = Lines()
        self._identity = Identity(tag=tag, boot=boot_id(), guard=0, guard_birth=0, main=0, main_birth=0)
        self._rung = Rung.UNKNOWN
        self._confinement: dict[str, Any] = {}
        self._began: asyncio.Future[None] = self._loop.create_future()
        self._verdict: asyncio.Future[Verdict] = self._loop.create_future()
        self._cell: asyncio.Future[dict[str, Any]] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self.spec = spec
        self._pump = Pump(output, spec.limits, spec.spill, scrubber, executor, self._on_too_much)
        self._loop.add_reader(control.fileno(), self._on_control)

    @property
    def title(self) -> str:
        """What to call it in lists."""
        return self.spec.title or self.spec.argv[0]

    @property
    def identity(self) -> Identity:
        """Where it can be found again; write it down before relying on recovery."""
        return self._identity

    @property
    def output(self) -> Output:
        """What it wrote so far."""
        return self._pump.output()

    @property
    def verdict(self) -> Verdict | None:
        """How it ended, or None while it has not."""
        return self._verdict.result() if self._verdict.done() else None

    def lines(self) -> AsyncIterator[LiveLines]:
        """Live output for one reader, ending with the scope. A slow reader loses lines, never time of the command."""
        return self._pump.live.read()

    async def begun(self) -> None:
        """Returns once the command has been executed, or has ended before it could be.

        Raises:
            ProcessesError: It never began; which one says why.
        """
        await asyncio.shield(self._began)

    async def wait(self) -> Verdict:
        """The verdict, once there is one. Cancelling it ends only the waiting: stop the scope, too."""
        return await asyncio.shield(self._verdict)

    async def stop(self, reason: Reason = Reason.CANCEL) -> Verdict:
        """Kills everything in the scope at once and returns with the verdict; in bounded time, whatever happens.

        May be called any number of times, from several tasks, and after the end. Cancelling it does not cut it short:
        CancelledError goes through after the verdict.
        """
        self._tell({"do": "stop", "reason": reason})
        self._expect_end()
        return await outlast(self._verdict)

    async def mark(self) -> None:
        """Everything that runs now, and what comes of it, is spared by the next `interrupt`."""
        await self._ask({"do": "mark"})

    async def interrupt(self, *, with_signal: bool = True) -> dict[str, Any]:
        """Kills what the main process started since the mark and, unless told not to, sends SIGINT to the main process.

        Returns:
            `swept` (how many were killed), `empty`, `milliseconds`; `empty` is False when the scope ended meanwhile.
        """
        return await self._ask({"do": "interrupt", "signal": with_signal})

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._verdict.done() or self._closing is not None:
            return {"swept": 0, "empty": False, "milliseconds": 0.0}
        while self._cell is not None:
            await asyncio.wait([self._cell])
        self._cell = self._loop.create_future()
        self._tell(message)
        return await asyncio.shield(self._cell)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._closing is None and not self._verdict.done():
            with suppress(OSError):  # the guard is gone: its silence says the rest
                self._control.send(json.dumps(message).encode() + b"\n")

    def _expect_end(self) -> None:
        if self._giving_up is None and self._closing is None and not self._verdict.done():
            self._giving_up = self._loop.call_later(STOP_BUDGET, self._lose)

    def _on_too_much(self) -> None:
        self._tell({"do": "stop", "reason": Reason.OUTPUT_LIMIT})
        self._expect_end()

    def _on_control(self) -> None:
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for message in self._lines.feed(data):
            self._take(message)
        if not data and self._closing is None:
            self._lose()

    def _take(self, message: dict[str, Any]) -> None:
        if "guard" in message:
            self._found(guard=message["guard"], guard_birth=message["birth"])
        elif "main" in message:
            self._found(main=message["main"], main_birth=message["main_birth"])
            self._rung = Rung(message["rung"])
            self._confinement = message.get("confinement") or {}
            self._settle_begun(None)
        elif "verdict" in message:
            self._close(message)
        elif self._cell is not None:
            self._answer_cell(message)

    def _found(self, **known: Any) -> None:
        self._identity = Identity(**(self._identity.record() | known))

    def _answer_cell(self, message: dict[str, Any]) -> None:
        if self._cell is not None and not self._cell.done():
            self._cell.set_result(message)
        self._cell = None

    def _settle_begun(self, error: ProcessesError | None) -> None:
        if self._began.done():
            return
        if error is None:
            self._began.set_result(None)
        else:
            self._began.set_exception(error)
            self._began.exception()  # the starter may be gone; that is no reason for a warning

    def _failure(self, message: dict[str, Any]) -> ProcessesError | None:
        found = message.get("failure")
        if not found:
            return None
        size = sum(map(len, self.spec.argv)) + sum(len(name) + len(value) + 2 for name, value in self.spec.env.items())
        return failure_of(found["failed"], found["errno"], found["text"], self.spec.argv, self.spec.cwd, size)

    def _lose(self) -> None:
        if self._closing is None:
            self._close(None)

    def _close(self, message: dict[str, Any] | None) -> None:
        if self._closing is not None:
            return
        self._loop.remove_reader(self._control.fileno())
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._answer_cell({"swept": 0, "empty": False, "milliseconds": 0.0})
        self._closing = self._loop.create_task(self._end(message), name=f"end of scope {self._identity.tag}")

    async def _end(self, message: dict[str, Any] | None) -> None:
        killed = 0
        try:
            self._control.close()
            if message is None and self._identity.guard:
                killed = (await self._loop.run_in_executor(self._executor, end_recorded, self._identity, 0.0)).killed
            await self._pump.finish()
        finally:
            self._settle(message, killed)

    def _settle(self, message: dict[str, Any] | None, killed: int) -> None:
        if message is not None:
            self._settle_begun(self._failure(message))
        else:
            self._settle_begun(StartUnknownError() if self._identity.guard else UnbornError())
        self._verdict.set_result(self._judge(message) if message else self._lost(killed))
        self._ended(self)

    def _judge(self, message: dict[str, Any]) -> Verdict:
        return Verdict(
            reason=Reason(message["verdict"]),
            exit_code=message["exit_code"],
            killed=message["killed"],
            leftovers=message["leftovers"],
            empty=message["empty"],
            milliseconds=message["milliseconds"],
            rung=self._rung,
            confinement=self._confinement,
            output_bytes=self._pump.text.total_bytes,
        )

    def _lost(self, killed: int) -> Verdict:
        return Verdict(
            reason=Reason.LOST,
            exit_code=None,
            killed=killed,
            leftovers=0,
            empty=not self._identity.guard,
            milliseconds=0.0,
            rung=self._rung,
            confinement=self._confinement,
            output_bytes=self._pump.text.total_bytes,
        )
