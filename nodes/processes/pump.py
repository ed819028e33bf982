"""Moves a command's output from its pipe into bounded memory, and to a file when there is more, without a thread of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from nodes.processes.output import BoundedText, LiveBuffer, Output, snapshot
from nodes.processes.scrubbing import Scrubber
from nodes.processes.spec import OutputLimits

_PIECE = 1 << 16
_LAST_DRAIN = 1 << 20
"""Bytes read after the verdict at most: what a pipe can hold, and an end when something outside still writes."""

_DISK_PATIENCE = 5.0


class Spill:
    """The file for the full output, made when memory no longer holds it. Called in a thread, one call at a time."""

    def __init__(self, path: Path, room: int) -> None:
        self.path = path
        self.written = 0
        self.failed: str | None = None
        self._room = room
        self._descriptor: int | None = None

    def write(self, data: bytes) -> None:
        """Appends what still fits. A full disk ends the file, not the command."""
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open(self.path, flags, 0o600)
            view = memoryview(data)[: self._room - self.written]
            while view:
                done = os.write(self._descriptor, view)
                self.written += done
                view = view[done:]
        except OSError as error:
            self.failed = str(error)

    @property
    def full(self) -> bool:
        """Whether writing more is pointless."""
        return self.failed is not None or self.written >= self._room

    def close(self) -> None:
        """Closes the file, if there is one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Pump:
    """Reads one pipe from the loop. Nobody has to wait for it: it follows the command until `finish`.

    Attributes:
        text: What was kept.
        live: Lines for one reader.
    """

    def __init__(
        self,
        descriptor: int,
        limits: OutputLimits,
        spill: Path | None,
        scrubber: Scrubber,
        executor: Executor,
        over: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._limits = limits
        self._scrubber = scrubber
        self._executor = executor
        self._over = over
        self._spill = Spill(spill, limits.spill) if spill else None
        self._writing: asyncio.Future[None] | None = None
        self._open = True
        self.text = BoundedText(limits.head, limits.tail)
        self.live = LiveBuffer(limits.live)
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._on_readable)

    def output(self) -> Output:
        """What is known now."""
        made = self._spill is not None and self._spill.written > 0
        return snapshot(
            self.text, self._spill.path if self._spill and made else None, self._spill.written if self._spill else 0
        )

    def _on_readable(self) -> None:
        if self._read() is not True:
            self._stop_reading()

    def _read(self) -> bool | None:
        """True: read something. False: nothing there now. None: the end."""
        try:
            data = os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return self._open
        except OSError:
            return None
        if not data:
            return None
        self._take(self._scrubber.feed(data))
        return True

    def _take(self, data: bytes) -> None:
        if not data:
            return
        before = None if self.text.overflowed else self.text.kept()
        self.text.feed(data)
        self.live.feed(data)
        if self._spill and not self._spill.full and self.text.overflowed:
            self._to_file(data if before is None else before + data)
        if self._limits.total is not None and self.text.total_bytes > self._limits.total:
            self._over()

    def _to_file(self, data: bytes) -> None:
        # The pipe waits while the disk writes: that is what keeps memory bounded. The guard's deadline does not.
        if self._writing is not None:
            raise RuntimeError("The pump reads while a write is under way.")
        assert self._spill is not None
        self._writing = self._loop.run_in_executor(self._executor, self._spill.write, data)
        self._loop.remove_reader(self._descriptor)
        self._writing.add_done_callback(self._on_written)

    def _on_written(self, _done: asyncio.Future[None]) -> None:
        self._writing = None
        if self._open:
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _stop_reading(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)

    async def finish(self) -> None:
        """After the verdict: takes what the pipe still holds, closes everything. Never waits for the pipe's end.

        A disk that hangs ends the waiting after `_DISK_PATIENCE` seconds; the verdict must not hang with it.
        """
        self._stop_reading()
        try:
            async with asyncio.timeout(_DISK_PATIENCE):
                await self._drain()
        except TimeoutError:
            return
        finally:
            os.close(self._descriptor)
            self.live.end()

    async def _drain(self) -> None:
        last = self.text.total_bytes + _LAST_DRAIN
        while self._writing is not None or (self.text.total_bytes <= last and self._read()):
            if self._writing is not None:
                await asyncio.wait([self._writing])
        self._take(self._scrubber.rest())
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._spill is not None:
            await self._loop.run_in_executor(self._executor, self._spill.close)
