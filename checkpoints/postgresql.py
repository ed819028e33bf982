"""A store in a PostgreSQL database: one write connection a process, reconnecting, with row locks between processes.

Needs the extra `postgresql`. Reads use `readers.ReaderPool` like SQLite's: a connection a thread, checked by use and made
again when the server dropped it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from checkpoints.migrations import migrate, stored_version
from checkpoints.store_errors import (
    NotAStoreError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from checkpoints.tx import Row
from checkpoints.watch import HINTED_SECONDS, POLL_SECONDS, Signals
from checkpoints.writer import BatchLostError

T = TypeVar("T")

RETRY_SECONDS = 0.2
MIGRATION_LOCK = 4_846_027_415
"""Any number that nobody else takes: processes that open a new database at the same moment migrate one after the other."""

KINDS: tuple[tuple[type[psycopg.Error], type[StoreError]], ...] = (
    (errors.LockNotAvailable, StoreBusyError),
    (errors.ReadOnlySqlTransaction, StoreReadOnlyError),
    (errors.InsufficientPrivilege, StoreReadOnlyError),
    (errors.DuplicateTable, NotAStoreError),
    (errors.DiskFull, StoreFullError),
    (errors.DataCorrupted, StoreCorruptError),
    (errors.IndexCorrupted, StoreCorruptError),
    (psycopg.OperationalError, StoreUnavailableError),
)

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresTx:
    """A transaction on one PostgreSQL connection. Row locks are taken on the table with the alias `t`."""

    for_update = " FOR UPDATE OF t"
    for_share = " FOR SHARE OF t"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Runs one statement and gives its rows."""
        cursor = self._connection.execute(_translated(sql), params)
        return cursor.fetchall() if cursor.description else []


class PostgresServer:
    """Where a PostgreSQL store is and how its connections are made.

    Args:
        address: A `postgresql://` address, or what libpq takes.
        busy_seconds: How long a write waits for a lock, and how long a lost server may stay away.
    """

    dialect = "postgresql"

    def __init__(self, address: str, *, busy_seconds: float) -> None:
        parts = conninfo_to_dict(address)
        self.name = f"postgresql://{parts.get('host', '')}:{parts.get('port', '5432')}/{parts.get('dbname', '')}"
        self.busy_seconds = busy_seconds
        self._address = address

    def writer(self) -> PostgresWriter:
        """Connects and brings the store to the current version. Called in the writer's thread."""
        try:
            connection = self.connect()
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                migrate(PostgresTx(connection), self.dialect, self.name, stored=self._version(connection))
        except psycopg.Error as error:
            raise self.explain(error) from error
        return PostgresWriter(connection, self)

    def reader(self) -> PostgresReader:
        """Opens a read connection, made in the thread that will use it."""
        return PostgresReader(self)

    def hints(self) -> PostgresHints:
        """A listener on a connection of its own."""
        return PostgresHints(self)

    def connect(self) -> Connection:
        """One connection, in autocommit: transactions are opened by name."""
        wait = max(1, int(self.busy_seconds))
        connection = psycopg.connect(self._address, autocommit=True, connect_timeout=wait, application_name="checkrein")
        connection.execute(f"SET lock_timeout = {int(self.busy_seconds * 1000)}")
        return connection

    def explain(self, error: psycopg.Error) -> StoreError:
        """The typed error for what PostgreSQL raised."""
        kind = next((kind for raised, kind in KINDS if isinstance(error, raised)), StoreError)
        return kind(self.name, str(error).strip().replace("\n", " "))

    def _version(self, connection: Connection) -> int:
        found = connection.execute("SELECT to_regclass('store_info')").fetchone()
        return 0 if found is None or found[0] is None else stored_version(PostgresTx(connection), self.name)


class PostgresWriter:
    """The write connection (`writer.WriteConnection`). It is made again when the server went away."""

    def __init__(self, connection: Connection, server: PostgresServer) -> None:
        self._connection = connection
        self._server = server
        self._tx = PostgresTx(connection)
        self._pause = threading.Event()

    def begin(self) -> None:
        """Opens a transaction, on a new connection when the old one is gone.

        Raises:
            StoreUnavailableError: The server did not come back in time.
        """
        try:
            self._connection.execute("BEGIN")
        except psycopg.OperationalError:
            self._reconnect()
            self._connection.execute("BEGIN")

    def apply(self, operation: Callable[[Any], T]) -> T:
        """Runs one operation in a savepoint."""
        try:
            self._connection.execute("SAVEPOINT operation")
            try:
                value = operation(self._tx)
            except (psycopg.OperationalError, errors.DeadlockDetected, errors.SerializationFailure) as error:
                if not isinstance(error, errors.LockNotAvailable):
                    raise
                self._undo()
                raise self._server.explain(error) from error
            except BaseException as error:
                self._undo()
                if isinstance(error, psycopg.Error):
                    raise self._server.explain(error) from error
                raise
            self._connection.execute("RELEASE operation")
            return value
        except (psycopg.OperationalError, errors.DeadlockDetected, errors.SerializationFailure) as error:
            raise BatchLostError(self._server.explain(error), again=True) from error

    def commit(self) -> None:
        """Makes the transaction durable. When the connection breaks in between, the server is asked what became of it."""
        try:
            [(transaction,)] = self._tx.execute("SELECT CAST(pg_current_xact_id_if_assigned() AS TEXT)")
        except psycopg.OperationalError as error:
            raise BatchLostError(self._server.explain(error), again=True) from error
        try:
            self._connection.execute("COMMIT")
        except psycopg.OperationalError as error:
            self._find_out(transaction, error)
        except psycopg.Error as error:
            raise self._server.explain(error) from error

    def abandon(self) -> None:
        """Rolls back whatever is open."""
        try:
            self._connection.rollback()
        except psycopg.Error:
            self._connection.close()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def compact(self) -> None:
        """Gives deleted space back (VACUUM FULL needs a lock on each table; readers wait meanwhile)."""
        try:
            self._connection.execute("VACUUM FULL")
        except psycopg.Error as error:
            raise self._server.explain(error) from error

    def _undo(self) -> None:
        self._connection.execute("ROLLBACK TO operation")
        self._connection.execute("RELEASE operation")

    def _find_out(self, transaction: str | None, error: psycopg.OperationalError) -> None:
        """Returns when the transaction turns out to be committed (or was empty)."""
        deadline = time.monotonic() + self._server.busy_seconds
        self._reconnect()
        status = "committed" if transaction is None else self._status_of(transaction)
        while status == "in progress" and time.monotonic() < deadline:
            self._pause.wait(RETRY_SECONDS)
            status = self._status_of(cast("str", transaction))
        if status == "aborted":
            raise BatchLostError(self._server.explain(error), again=True) from error
        if status != "committed":
            raise StoreUnavailableError(self._server.name, f"{error}; the last write may have been kept") from error

    def _status_of(self, transaction: str) -> str | None:
        """`committed`, `aborted`, `in progress`, or None where the server cannot tell (any more)."""
        try:
            [(status,)] = self._tx.execute("SELECT pg_xact_status(CAST(? AS xid8))", (transaction,))
        except errors.InvalidParameterValue:
            return "aborted"  # A number that a crashed server never wrote down: "in the future" for the new one.
        except psycopg.OperationalError:
            self._reconnect()
            return "in progress"
        return cast("str | None", status)

    def _reconnect(self) -> None:
        self._connection.close()
        deadline = time.monotonic() + self._server.busy_seconds
        while True:
            try:
                self._connection = self._server.connect()
                self._tx = PostgresTx(self._connection)
                return
            except psycopg.OperationalError as error:
                if time.monotonic() >= deadline:
                    raise self._server.explain(error) from error
            self._pause.wait(RETRY_SECONDS)


class PostgresReader:
    """A read connection: each read sees one moment. Made again when the server dropped it, since reads can be repeated."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection: Connection | None = None

    def read(self, operation: Callable[[Any], T]) -> T:
        """Runs a read operation in a transaction of its own."""
        try:
            if self._connection is None or self._connection.closed:
                return self._read(self._connected(), operation)
            try:
                return self._read(self._connection, operation)
            except psycopg.OperationalError:
                return self._read(self._connected(), operation)
        except psycopg.Error as error:
            raise self._server.explain(error) from error

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> Connection:
        self.close()
        self._connection = self._server.connect()
        return self._connection

    @staticmethod
    def _read(connection: Connection, operation: Callable[[Any], T]) -> T:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return operation(PostgresTx(connection))
        finally:
            connection.rollback()


class PostgresHints:
    """LISTEN on a connection of its own. While it has none, those who wait look more often."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._closed = threading.Event()

    def pump(self, signals: Signals) -> None:
        """Passes hints on until `close`, reconnecting whenever the server went away."""
        while not self._closed.is_set():
            try:
                self._listen(signals)
            except psycopg.Error:
                # Hints are a convenience: without them everything still works, a little later.
                signals.poll_seconds = POLL_SECONDS
                self._closed.wait(RETRY_SECONDS)

    def close(self) -> None:
        """Ends `pump` within a moment."""
        self._closed.set()

    def _listen(self, signals: Signals) -> None:
        with self._server.connect() as connection:
            connection.execute("LISTEN checkrein")
            signals.poll_seconds = HINTED_SECONDS
            while not self._closed.is_set():
                for hint in connection.notifies(timeout=RETRY_SECONDS):
                    signals.notify("events", hint.payload)
                    signals.notify("cause", hint.payload)


@lru_cache(maxsize=512)
def _translated(sql: str) -> str:
    """The statement with psycopg's placeholders. None of ours has a question mark in a text."""
    return sql.replace("%", "%%").replace("?", "%s")
