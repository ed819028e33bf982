"""A few threads with a read connection each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class ReadConnection(Protocol):
    """A database connection for reads, used by one thread."""

    def read(self, operation: Callable[[Any], T]) -> T:
        """Runs the operation on one consistent view. May raise a StoreError."""

    def close(self) -> None:
        """Closes the connection."""


class ReaderPool:
    """Runs read operations off the event loop.

    Args:
        name: Prefix of the threads' names.
        connect: Opens a connection, in the thread that will use it.
        size: How many threads, and so connections, there are at most; they are made when they are first needed.
    """

    def __init__(self, name: str, connect: Callable[[], ReadConnection], *, size: int) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(max_workers=size, thread_name_prefix=name)
        self._local = threading.local()
        self._connections: list[ReadConnection] = []

    async def read(self, operation: Callable[[Any], T]) -> T:
        """Runs one operation. Cancelling the wait leaves it to end by itself."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, operation)

    def read_blocking(self, operation: Callable[[Any], T]) -> T:
        """The same from a thread."""
        return self._threads.submit(self._read, operation).result()

    def stop(self) -> None:
        """Waits for reads that are under way and closes the connections. Blocking."""
        self._threads.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

    def _read(self, operation: Callable[[Any], T]) -> T:
        connection: ReadConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
            self._connections.append(connection)
        return connection.read(operation)
