"""Waking those who wait for a row: at once inside a process, by a cheap look now and then between processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator

POLL_SECONDS = 0.1
"""How long one looks away where nobody gives hints between processes."""

HINTED_SECONDS = 2.0
"""The same where somebody does: a hint may be lost, a row is not."""

Topic = tuple[str, str]


class Signals:
    """Wake-ups inside the process. A wake-up is only a hint to look: the store's rows are the truth.

    Attributes:
        poll_seconds: How long to look away; longer while hints from other processes come in.
    """

    def __init__(self) -> None:
        self.poll_seconds = POLL_SECONDS
        self._waiting: dict[Topic, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def notify(self, kind: str, run_id: str) -> None:
        """Wakes everyone who listens to this. Callable from any thread."""
        for loop, event in tuple(self._waiting.get((kind, run_id), ())):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    @contextlib.contextmanager
    def listen(self, kind: str, run_id: str) -> Iterator[asyncio.Event]:
        """An event that is set by `notify`; clear it before looking, so that nothing between is missed."""
        topic, entry = (kind, run_id), (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.setdefault(topic, set()).add(entry)
        try:
            yield entry[1]
        finally:
            listeners = self._waiting[topic]
            listeners.discard(entry)
            if not listeners:
                del self._waiting[topic]


async def look_again(event: asyncio.Event, seconds: float) -> None:
    """Waits for the wake-up, but no longer than the time after which one looks anyway."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class SharedPoll:
    """One look now and then that serves everyone in a loop who waits for the same kind of thing.

    Args:
        look: Gives the run ids for which there is news.
        signals: Where they are announced.
        kind: The kind of topic to announce.
    """

    def __init__(self, look: Callable[[], Awaitable[Iterable[str]]], signals: Signals, kind: str) -> None:
        self._look = look
        self._signals = signals
        self._kind = kind
        self._running: dict[asyncio.AbstractEventLoop, tuple[asyncio.Task[None], int]] = {}

    @contextlib.contextmanager
    def wanted(self) -> Iterator[None]:
        """Keeps the poll of the current loop going for the block; the last one to leave ends it."""
        loop = asyncio.get_running_loop()
        task, count = self._running.get(loop) or (loop.create_task(self._go_on(), name=f"poll {self._kind}"), 0)
        self._running[loop] = (task, count + 1)
        try:
            yield
        finally:
            task, count = self._running.pop(loop)
            if count > 1:
                self._running[loop] = (task, count - 1)
            else:
                task.cancel()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._signals.poll_seconds)
            for run_id in await self._look():
                self._signals.notify(self._kind, run_id)
