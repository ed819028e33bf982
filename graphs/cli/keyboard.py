"""Lines from the terminal's keyboard, without a thread that could not be left: Ctrl-C ends a wait at once."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Awaitable, Callable

from graphs.cli.stops import Stops

ReadLine = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and gives the next line, or None at the end of input, at Ctrl-C, and when the command is to end."""

CHUNK = 65_536


class Keyboard:
    """Standard input as a terminal in line mode."""

    def __init__(self, stops: Stops) -> None:
        self._stops = stops
        self._descriptor = sys.stdin.fileno()

    async def read_line(self, prompt: str) -> str | None:
        """One line without its end. What was typed before the prompt stood there is thrown away: it answered nothing."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        sys.stdout.write(prompt)
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()
        typed = bytearray()

        def take() -> None:
            part = os.read(self._descriptor, CHUNK)
            typed.extend(part)
            if not answer.done() and (not part or typed.endswith(b"\n")):
                answer.set_result(typed.decode(errors="replace").rstrip("\r\n") if part else None)

        def leave(_reason: str) -> None:
            if not answer.done():
                answer.set_result(None)

        loop.add_reader(self._descriptor, take)
        try:
            with self._stops.handled_by(leave):
                line = await answer
        finally:
            loop.remove_reader(self._descriptor)
        if line is None:
            sys.stdout.write("\n")
        return line
