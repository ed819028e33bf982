"""One queued operation of the writer and whoever waits for its answer, in an event loop or in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any


class Ticket:
    """One queued operation and its answer.

    Args:
        operation: What to run in the transaction.
        loop: The event loop that waits for the answer, None for a thread.
        lost: Called in the writer's thread when the operation failed; for operations that nobody waits for.
    """

    __slots__ = ("_done", "_error", "_future", "_loop", "_lost", "operation", "value")

    def __init__(
        self,
        operation: Callable[[Any], Any],
        loop: asyncio.AbstractEventLoop | None,
        lost: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.operation = operation
        self.value: Any = None
        self._error: BaseException | None = None
        self._lost = lost
        self._loop = loop
        self._future = loop.create_future() if loop else None
        self._done = None if loop else threading.Event()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that waits for the answer, None for a thread."""
        return self._loop

    @property
    def error(self) -> BaseException | None:
        """Why the operation failed, if it did."""
        return self._error

    def fail(self, error: BaseException) -> None:
        """Notes the failure. Called in the writer's thread, before any later operation runs."""
        self._error = error
        if self._lost is not None:
            self._lost(error)

    def retry(self) -> None:
        """Forgets a failure, because the operation is run again."""
        self._error = None

    async def answer(self) -> Any:
        """Waits for the commit. Cancelling the wait does not withdraw the operation."""
        assert self._future is not None
        await self._future
        return self._result()

    def block(self) -> Any:
        """Waits for the commit in a thread."""
        assert self._done is not None
        self._done.wait()
        return self._result()

    def settle(self) -> None:
        """Wakes whoever waits. Called in the waiting loop, or in any thread for a blocking wait."""
        if self._done is not None:
            self._done.set()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    def _result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self.value


def settle_all(tickets: Iterable[Ticket]) -> None:
    """Wakes everyone who waits for these tickets, each in the loop or thread that it waits in."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        if ticket.loop is None:
            ticket.settle()
        else:
            by_loop.setdefault(ticket.loop, []).append(ticket)
    for loop, waiting in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.settle()
