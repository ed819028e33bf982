"""The store: one place for checkpoints, runs, effects and approvals, in a SQLite file or a PostgreSQL database.

Everything above this file says what to do inside a transaction; this file says when it happens: writes in order by one
writer with group commit (`writer.py`), reads beside it on connections of their own (`readers.py`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from checkpoints.backends import Backend, Hints, backend_for
from checkpoints.clock import Clock, SystemClock
from checkpoints.errors import ConflictError
from checkpoints.packing import Sealer
from checkpoints.readers import ReaderPool
from checkpoints.store_errors import StoreClosedError
from checkpoints.tickets import Ticket
from checkpoints.tx import Tx
from checkpoints.watch import Signals
from checkpoints.writer import COMPACT, GroupWriter, WriterStats

P = ParamSpec("P")
T = TypeVar("T")

BUSY_SECONDS = 30.0
READERS = 4


class Store:
    """An open store. Made by `open_store`; usable from any event loop and any thread.

    Attributes:
        clock: The clock of everything that is stored.
        redact: Applied to every text of an event's payload before it is stored.
        signals: Wake-ups for those in this process who wait for a row.
    """

    def __init__(self, backend: Backend, *, clock: Clock, redact: Callable[[str], str], readers: int) -> None:
        self.clock = clock
        self.redact = redact
        self._backend = backend
        self._writer = GroupWriter("checkrein-writer", backend.name, backend.writer)
        self._readers = ReaderPool("checkrein-reader", backend.reader, size=readers)
        self.signals = Signals()
        self._lost: dict[str, BaseException] = {}
        self._hints: Hints | None = None
        self._pump: threading.Thread | None = None
        self._open = False
        self._sealer: Sealer | None = None

    @property
    def sealer(self) -> Sealer:
        """Packs and unpacks row bodies with this store's own key."""
        assert self._sealer is not None
        return self._sealer

    @property
    def name(self) -> str:
        """Path or address, without credentials."""
        return self._backend.name

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._backend.dialect

    @property
    def stats(self) -> WriterStats:
        """What the writer did so far."""
        return self._writer.stats

    async def write(self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs an operation in the next transaction and gives its value after the commit.

        The order of calls is the order of execution. An operation that raises undoes only itself. Cancelling the wait
        does not withdraw the operation. The operation may be run again when the database undid the transaction.

        Raises:
            StoreError: The commit failed; nothing of it was kept.
        """
        self._check_open()
        ticket = Ticket(_bind(operation, *args, **kwargs), asyncio.get_running_loop())
        self._writer.put(ticket)
        value: T = await ticket.answer()
        return value

    def post(self, thread_id: str, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> None:
        """Queues an operation of a thread and returns at once; it is on disk no later than any write queued after it.

        When it fails, `lost` tells it to the next one who asks about the thread. Callable with or without an event loop.
        """
        self._check_open()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        ticket = Ticket(_bind(operation, *args, **kwargs), loop, partial(self._note_lost, thread_id))
        self._writer.put(ticket, lazy=True)

    def lost(self, thread_id: str) -> BaseException | None:
        """The first failure of a posted operation of the thread, told once. Exact inside a later write's operation."""
        return self._lost.pop(thread_id, None)

    def write_blocking(self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write` for a thread without an event loop."""
        ticket = Ticket(_bind(operation, *args, **kwargs), None)
        self._check_open()
        self._writer.put(ticket)
        value: T = ticket.block()
        return value

    async def barrier(self) -> None:
        """Returns when everything queued before it is on disk."""
        if not self._writer.idle:
            await self.write(_nothing)

    async def compact(self) -> None:
        """Gives deleted space back to the file system; writes queued after it wait for it."""
        self._check_open()
        ticket = Ticket(COMPACT, asyncio.get_running_loop())
        self._writer.put(ticket)
        await ticket.answer()

    async def read(self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a read operation on one consistent view, which holds every write queued before the call."""
        self._check_open()
        await self.barrier()
        return await self._readers.read(_bind(operation, *args, **kwargs))

    def read_blocking(self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`read` for a thread without an event loop."""
        self._check_open()
        if not self._writer.idle:
            self.write_blocking(_nothing)
        return self._readers.read_blocking(_bind(operation, *args, **kwargs))

    def start(self) -> None:
        """Connects and migrates. Blocking; raises a StoreError."""
        self._writer.start()
        self._open = True
        self._sealer = Sealer(self.write_blocking(_store_key))
        self._hints = self._backend.hints()
        if self._hints is not None:
            self._pump = threading.Thread(target=self._hints.pump, args=(self.signals,), name="checkrein-hints", daemon=True)
            self._pump.start()

    def stop(self) -> None:
        """Commits what is queued and closes every connection. Blocking; does nothing when it never started."""
        self._open = False
        if self._hints is not None and self._pump is not None:
            self._hints.close()
            self._pump.join()
        self._writer.stop()
        self._readers.stop()

    def _note_lost(self, thread_id: str, error: BaseException) -> None:
        # A refused writer meets its refusal again with its next write; the thread's owner has not lost anything by it.
        if not isinstance(error, ConflictError):
            self._lost.setdefault(thread_id, error)

    def _check_open(self) -> None:
        if not self._open:
            raise StoreClosedError(self.name)


@asynccontextmanager
async def open_store(
    target: str | Path,
    *,
    clock: Clock | None = None,
    redact: Callable[[str], str] = str,
    busy_seconds: float = BUSY_SECONDS,
    readers: int = READERS,
) -> AsyncIterator[Store]:
    """Opens the store at a file path or a `postgresql://` address, and closes it after the block.

    Args:
        target: Where it is. A file is made when it is not there, its folder is not.
        clock: Where instants come from; the machine's clock by default.
        redact: Applied to every text of an event's payload before it is stored.
        busy_seconds: How long a write waits for another process before it fails with StoreBusyError.
        readers: How many read connections there are at most.

    Raises:
        MissingExtraError: The address needs a driver that is not installed.
        StoreError: One of its subclasses says what is wrong with the place, the file or its version.
    """
    backend = backend_for(target, busy_seconds=busy_seconds)
    store = Store(backend, clock=clock or SystemClock(), redact=redact, readers=readers)
    try:
        await _to_the_end(store.start)
        yield store
    finally:
        await _to_the_end(store.stop)


async def _to_the_end(step: Callable[[], None]) -> None:
    """Runs a blocking step in a thread; cancellations wait for it and then go through, so that no thread is left."""
    # A future and no task: `asyncio.run` cancels every task when it ends, and this step may not be let go of.
    running = asyncio.get_running_loop().run_in_executor(None, step)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # It is the cancellation that the caller hears of.
        raise cancelled
    running.result()


def _bind(operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> Callable[[Tx], T]:
    return lambda tx: operation(tx, *args, **kwargs)


def _store_key(tx: Tx) -> bytes:
    """The store's own key, drawn when the store is made."""
    tx.execute("INSERT INTO store_info (name, value) VALUES ('key', ?) ON CONFLICT (name) DO NOTHING", (os.urandom(16).hex(),))
    [(key,)] = tx.execute("SELECT value FROM store_info WHERE name = 'key'")
    return bytes.fromhex(key)


def _nothing(_tx: Tx) -> None:
    """The operation of a barrier: its commit is the point."""
