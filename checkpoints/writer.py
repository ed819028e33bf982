"""One writer a store, and group commit: operations queue in order and share a transaction and its disk flush.

An operation runs inside a savepoint, so that one that fails takes back only itself. An answer comes after the commit that
holds it. While one batch is being flushed the next one gathers, so durability costs less a write the more there are (the
figures behind this are about 0.3 ms for a commit of one row and of ten).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from checkpoints.run_errors import StaleFenceError
from checkpoints.store_errors import StoreClosedError, StoreError
from checkpoints.tickets import Ticket, settle_all

BATCH = 512
LAZY_SECONDS = 0.01

CROWD = 8
"""Operations in the last commit from which on many runs must be at work, so that waiting for more of them pays."""

GATHER_PER_OPERATION, GATHER_AT_MOST = 0.002, 0.04
"""Seconds that the next commit then waits per operation of the last one, and at most.

With 200 runs it halves the commits and costs no throughput, since the event loop is what is busy; a few runs never wait.
"""


def _compact(_tx: Any) -> None:
    """Never called: see COMPACT."""


COMPACT = _compact
"""In place of an operation: the writer gives deleted space back instead."""


class WriteConnection(Protocol):
    """A database connection as the writer thread uses it. Every method may raise a StoreError."""

    def begin(self) -> None:
        """Opens a write transaction, waiting for other processes no longer than the store allows."""

    def apply(self, operation: Callable[[Any], Any]) -> Any:
        """Runs one operation in a savepoint: its own errors undo only itself, and go up as they are.

        Raises:
            BatchLostError: The whole transaction is gone and has to be run again.
        """

    def commit(self) -> None:
        """Makes the transaction durable."""

    def compact(self) -> None:
        """Gives deleted space back; called outside transactions."""

    def abandon(self) -> None:
        """Rolls back whatever is open. Never fails."""

    def close(self) -> None:
        """Closes the connection."""


class BatchLostError(Exception):
    """The database undid the whole transaction, not only the operation that met the error.

    Attributes:
        reason: What to raise when no second try helps.
        again: True when a second try may go better.
    """

    def __init__(self, reason: StoreError, *, again: bool) -> None:
        self.reason = reason
        self.again = again
        super().__init__(str(reason))


@dataclass(slots=True)
class WriterStats:
    """What the writer did since it started. `refused` counts operations whose fence was stale."""

    operations: int = 0
    commits: int = 0
    failed: int = 0
    refused: int = 0
    retried: int = 0


class GroupWriter:
    """The writer thread. Made by `Store`, which is its only user.

    Args:
        name: The thread's name.
        store: The store's name, for errors.
        connect: Opens the connection, in the writer thread.
        attempts: How often a lost batch is run in all before its operations fail.
    """

    def __init__(self, name: str, store: str, connect: Callable[[], WriteConnection], *, attempts: int = 5) -> None:
        self.stats = WriterStats()
        self._store_name = store
        self._connect = connect
        self._attempts = attempts
        self._tickets: deque[Ticket] = deque()
        # A SimpleQueue because its put never blocks, so the event loop may call it.
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        # Loops that have a wake-up under way, at once or after a moment; a loop that ends takes its own along.
        self._waking: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._dozing: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._busy = False
        self._ended = False
        self._crowd = 0
        self._stopping = threading.Event()
        self._opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread and waits until it is connected; raises what connecting raised. Blocking."""
        self._thread.start()
        if (error := self._opened.get()) is not None:
            self._thread.join()
            raise error

    def stop(self) -> None:
        """Commits what is queued and ends the thread. Blocking; does nothing when it never started."""
        self._stopping.set()
        if self._thread.is_alive():
            self._signals.put(False)
            self._thread.join()

    @property
    def idle(self) -> bool:
        """True when everything queued so far is committed."""
        # In this order: the writer is busy before it takes a ticket and until its commit.
        return not self._tickets and not self._busy

    def put(self, ticket: Ticket, *, lazy: bool = False) -> None:
        """Queues a ticket; the order of calls is the order of execution.

        The writer is woken at the end of the loop's current round, so that everything that is ready now shares a commit; a
        lazy ticket waits `LAZY_SECONDS` for something less patient to take it along.
        """
        self._tickets.append(ticket)
        if self._ended:
            self._refuse()
            return
        loop = ticket.loop
        if loop is None:
            self._signals.put(True)
        elif lazy:
            if loop not in self._dozing:
                self._dozing.add(loop)
                loop.call_later(LAZY_SECONDS, self._wake, loop, self._dozing)
        elif loop not in self._waking:
            self._waking.add(loop)
            loop.call_soon(self._wake, loop, self._waking)

    def _wake(self, loop: asyncio.AbstractEventLoop, under_way: weakref.WeakSet[asyncio.AbstractEventLoop]) -> None:
        under_way.discard(loop)
        if self._tickets:
            self._signals.put(True)

    def _run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - handed to start(), which raises it
            self._opened.put(error)
            return
        self._opened.put(None)
        try:
            running = True
            while running:
                running = self._signals.get()
                while self._tickets:
                    step = self._compact if self._tickets[0].operation is COMPACT else self._commit_batch
                    step(connection)
        finally:
            self._ended = True
            self._refuse()
            connection.close()

    def _refuse(self) -> None:
        """Answers tickets that came too late: nobody may wait for a writer that has ended."""
        late: list[Ticket] = []
        while self._tickets:
            # Two threads may empty the queue at once, so its length is no promise.
            with contextlib.suppress(IndexError):
                late.append(self._tickets.popleft())
        self._fail(late, StoreClosedError(self._store_name))
        settle_all(late)

    def _compact(self, connection: WriteConnection) -> None:
        """Runs the ticket at the head of the queue by itself, between two batches."""
        self._busy = True
        ticket = self._tickets.popleft()
        try:
            connection.compact()
        except Exception as error:  # noqa: BLE001 - as above
            ticket.fail(error)
        self._settle([ticket])

    def _commit_batch(self, connection: WriteConnection) -> None:
        self._busy = True
        if self._crowd >= CROWD:
            self._stopping.wait(min(GATHER_AT_MOST, GATHER_PER_OPERATION * self._crowd))
        batch: list[Ticket] = []
        for attempt in range(1, self._attempts + 1):
            try:
                self._play(connection, batch)
                break
            except BatchLostError as lost:
                connection.abandon()
                if not lost.again or attempt == self._attempts:
                    self._fail(batch, lost.reason)
                    break
                self.stats.retried += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
                connection.abandon()
                self._fail(batch, error)
                break
        self._crowd = len(batch)
        self._settle(batch)

    def _play(self, connection: WriteConnection, batch: list[Ticket]) -> None:
        """Runs what the batch already holds (a second try), then what is queued, and commits."""
        waiting = len(self._tickets)
        try:
            connection.begin()
        except BaseException:
            # Whoever waited through the failed begin gets its error; later arrivals get a begin of their own.
            batch.extend(self._tickets.popleft() for _ in range(min(waiting, BATCH) if not batch else 0))
            raise
        for ticket in batch:
            self._apply(connection, ticket)
        while self._tickets and len(batch) < BATCH and self._tickets[0].operation is not COMPACT:
            batch.append(self._tickets.popleft())
            self._apply(connection, batch[-1])
        connection.commit()
        self.stats.commits += 1

    @staticmethod
    def _apply(connection: WriteConnection, ticket: Ticket) -> None:
        ticket.retry()
        try:
            ticket.value = connection.apply(ticket.operation)
        except BatchLostError:
            raise
        except Exception as error:  # noqa: BLE001 - raised again where the answer is awaited
            ticket.fail(error)

    @staticmethod
    def _fail(batch: list[Ticket], error: BaseException) -> None:
        for ticket in batch:
            ticket.fail(error)

    def _settle(self, batch: list[Ticket]) -> None:
        self.stats.operations += len(batch)
        self.stats.failed += sum(ticket.error is not None for ticket in batch)
        self.stats.refused += sum(isinstance(ticket.error, StaleFenceError) for ticket in batch)
        self._busy = False
        settle_all(batch)
