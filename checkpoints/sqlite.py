"""A store in one SQLite file: write-ahead log, full durability, bounded waits, and errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from checkpoints.migrations import migrate, stored_version
from checkpoints.store_errors import (
    NotAStoreError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreMissingError,
    StoreReadOnlyError,
)
from checkpoints.tx import Row
from checkpoints.writer import BatchLostError

T = TypeVar("T")

KINDS: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_BUSY: StoreBusyError,
    sqlite3.SQLITE_LOCKED: StoreBusyError,
    sqlite3.SQLITE_READONLY: StoreReadOnlyError,
    sqlite3.SQLITE_PERM: StoreReadOnlyError,
    sqlite3.SQLITE_NOTADB: NotAStoreError,
    sqlite3.SQLITE_CORRUPT: StoreCorruptError,
    sqlite3.SQLITE_FULL: StoreFullError,
    sqlite3.SQLITE_CANTOPEN: StoreMissingError,
}
"""Errors by SQLite's primary result code (the low byte of the extended one)."""

WAL_LIMIT = 64 * 1024 * 1024
PAUSE_SECONDS = 0.02


class SqliteTx:
    """A transaction on one SQLite connection. One writer at a time, so rows need no locks."""

    for_update = ""
    for_share = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Runs one statement and gives its rows."""
        return self._connection.execute(sql, params).fetchall()


class SqliteFile:
    """Where a SQLite store is and how its connections are made.

    Args:
        path: The database file. It is made, for this user only, when it is not there; its folder is not.
        busy_seconds: How long a write waits for another process's lock.
    """

    dialect = "sqlite"

    def __init__(self, path: Path, *, busy_seconds: float) -> None:
        self.path = path
        self.name = str(path)
        self.busy_seconds = busy_seconds

    def writer(self) -> SqliteWriter:
        """Opens the write connection and brings the store to the current version. Called in the writer's thread."""
        try:
            return self._open_writer()
        except sqlite3.Error as error:
            raise self.explain(error) from error

    def reader(self) -> SqliteReader:
        """Opens a read connection. Called in the thread that will use it."""
        try:
            connection = self._connect(self.path)
            connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise self.explain(error) from error
        return SqliteReader(connection, self)

    def hints(self) -> None:
        """SQLite tells nobody what another process wrote; those who wait look now and then."""

    def explain(self, error: sqlite3.Error) -> StoreError:
        """The typed error for what SQLite raised."""
        code = getattr(error, "sqlite_errorcode", None)
        kind = KINDS.get(code & 0xFF, StoreError) if code is not None else StoreError
        detail = f"{error}, after {self.busy_seconds:g} s" if kind is StoreBusyError else str(error)
        return kind(self.name, detail)

    def _open_writer(self) -> SqliteWriter:
        self._make()
        connection = self._connect(self.path)
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return SqliteWriter(connection, self)

    def _set_up(self, connection: sqlite3.Connection) -> None:
        self._version(connection)  # first of all: a file that is not ours must not even be switched to the log
        self._use_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        connection.execute("BEGIN IMMEDIATE")
        migrate(SqliteTx(connection), self.dialect, self.name, stored=self._version(connection))
        connection.execute("COMMIT")

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switches a file to the write-ahead log. SQLite does not wait for others there, so this does."""
        deadline = time.monotonic() + self.busy_seconds
        while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                threading.Event().wait(PAUSE_SECONDS)

    def _connect(self, path: Path) -> sqlite3.Connection:
        # Readers are closed by the thread that closes the store, hence check_same_thread.
        connection = sqlite3.connect(path, timeout=self.busy_seconds, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        return connection

    def _make(self) -> None:
        """Makes the file, readable by this user only, when it is not there.

        It is made aside and linked into place whole, so that of several that make it at once one wins. And no descriptor
        of it is opened but by SQLite: closing one would drop every lock that this process has on the file
        (sqlite.org/howtocorrupt.html, section 2.2).
        """
        try:
            if self.path.is_dir():
                raise NotAStoreError(self.name, "it is a folder")
            if self.path.exists():
                return
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")  # Mode 0600.
            os.close(descriptor)
            aside = Path(name)
            try:
                with contextlib.closing(self._connect(aside)) as connection:
                    self._set_up(connection)
                with contextlib.suppress(FileExistsError):
                    self.path.hardlink_to(aside)
            finally:
                aside.unlink(missing_ok=True)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreMissingError(self.name, error.strerror or "") from error
        except OSError as error:
            raise StoreReadOnlyError(self.name, error.strerror or "") from error

    def _version(self, connection: sqlite3.Connection) -> int:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not tables:
            return 0
        if "store_info" not in tables:
            raise NotAStoreError(self.name, "it holds the tables of another program")
        return stored_version(SqliteTx(connection), self.name)


class SqliteWriter:
    """The write connection (`writer.WriteConnection`)."""

    def __init__(self, connection: sqlite3.Connection, file: SqliteFile) -> None:
        self._connection = connection
        self._file = file
        self._tx = SqliteTx(connection)

    def begin(self) -> None:
        """Takes the write lock at once, so that no read has to be promoted later and fail."""
        self._run("BEGIN IMMEDIATE")

    def apply(self, operation: Callable[[Any], T]) -> T:
        """Runs one operation in a savepoint."""
        self._run("SAVEPOINT operation")
        try:
            value = operation(self._tx)
        except BaseException as error:
            # A full disk or an input/output error makes SQLite undo the transaction, and with it the whole batch.
            if not self._connection.in_transaction:
                raise BatchLostError(self._batch_error(error), again=False) from error
            self._run("ROLLBACK TO operation")
            self._run("RELEASE operation")
            if isinstance(error, sqlite3.Error):
                raise self._file.explain(error) from error
            raise
        self._run("RELEASE operation")
        return value

    def commit(self) -> None:
        """Makes the transaction durable."""
        self._run("COMMIT")

    def abandon(self) -> None:
        """Rolls back whatever is open."""
        if self._connection.in_transaction:
            self._connection.rollback()

    def close(self) -> None:
        """Closes the connection; SQLite folds the log into the file when it is the last one."""
        self._connection.close()

    def compact(self) -> None:
        """Rewrites the file without its free pages, and empties the log."""
        self._run("VACUUM")
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _run(self, sql: str) -> None:
        try:
            self._connection.execute(sql)
        except sqlite3.Error as error:
            raise self._file.explain(error) from error

    def _batch_error(self, error: BaseException) -> StoreError:
        return self._file.explain(error) if isinstance(error, sqlite3.Error) else StoreError(self._file.name, str(error))


class SqliteReader:
    """A read connection: each read sees one moment, and never waits for a writer or makes one wait."""

    def __init__(self, connection: sqlite3.Connection, file: SqliteFile) -> None:
        self._connection = connection
        self._file = file
        self._tx = SqliteTx(connection)

    def read(self, operation: Callable[[Any], T]) -> T:
        """Runs a read operation in a transaction of its own."""
        try:
            self._connection.execute("BEGIN")
            try:
                return operation(self._tx)
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._file.explain(error) from error

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
