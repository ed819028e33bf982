"""Notices that a stream stalls, with one timer for the whole stream: a timer for each read is a fifth of a token's cost."""

from __future__ import annotations

import asyncio

import aiohttp


class StallTimer:
    """Reads packets, and ends a read with TimeoutError when its limit passes. Time that the reader's caller spends is free.

    Args:
        stream: The body of a response.
    """

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._reading = False
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Sets the limit for what is read from now on; any number of reads share it until the next start."""
        self._until = self._loop.time() + seconds
        if self._handle is not None and self._handle.when() <= self._until:
            return  # the timer looks again when it fires
        self.stop()
        self._handle = self._loop.call_at(self._until, self._look)

    def stop(self) -> None:
        """Ends the watch."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    async def read(self) -> bytes:
        """The next packet; empty at the end of the stream.

        Raises:
            TimeoutError: The limit passed; the stream cannot be read any more.
        """
        self._reading = True
        try:
            return await self._stream.readany()
        finally:
            self._reading = False

    def _look(self) -> None:
        self._handle = None
        if self._loop.time() < self._until:
            self._handle = self._loop.call_at(self._until, self._look)
        elif self._reading:
            self._stream.set_exception(TimeoutError())
