"""What Ctrl-C, SIGTERM and SIGHUP mean at the moment: cancel the run, leave the prompt, or end the command."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphs.cli.exits import Exit

Stop = Callable[[str], None]
"""Takes the reason, in words. Called in the event loop, once a signal."""

REASONS = {
    signal.SIGINT: "Ctrl-C at the terminal",
    signal.SIGTERM: "the command was asked to end (SIGTERM)",
    signal.SIGHUP: "the terminal went away (SIGHUP)",
}


class Stops:
    """The signals of one command. While nobody handles them they end the command.

    Attributes:
        status: The exit status for a command that a signal ended; None while none did.
    """

    def __init__(self) -> None:
        self.status: Exit | None = None
        self._handlers: list[Stop] = []
        self._main: asyncio.Task[object] | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Takes the signals over for the current task."""
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        for number in REASONS:
            loop.add_signal_handler(number, self._arrived, number)
        try:
            yield
        finally:
            for number in REASONS:
                loop.remove_signal_handler(number)

    @contextmanager
    def handled_by(self, stop: Stop) -> Iterator[None]:
        """Inside the block a signal calls this instead."""
        self._handlers.append(stop)
        try:
            yield
        finally:
            self._handlers.remove(stop)

    def ignore(self) -> None:
        """From here on signals change nothing: the command knows its status and only puts things away."""
        self._handlers.append(lambda _reason: None)

    def _arrived(self, number: signal.Signals) -> None:
        if self._handlers:
            self._handlers[-1](REASONS[number])
        elif self._main is not None and self.status is None:
            self.status = Exit.INTERRUPTED if number is signal.SIGINT else Exit.TERMINATED
            self._main.cancel()
