"""Which database an address means."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from checkpoints.errors import UsageError
from checkpoints.readers import ReadConnection
from checkpoints.sqlite import SqliteFile
from checkpoints.watch import Signals
from checkpoints.writer import WriteConnection

SCHEMES = ("postgresql://", "postgres://")


class Hints(Protocol):
    """Hints from other processes that a run has news."""

    def pump(self, signals: Signals) -> None:
        """Passes hints on until `close`; sets `signals.poll_seconds` as long as they come. Runs in a thread of its own."""

    def close(self) -> None:
        """Ends `pump`. Called from another thread."""


class Backend(Protocol):
    """A database and how its connections are made."""

    name: str
    dialect: str

    def writer(self) -> WriteConnection:
        """Opens the write connection and migrates. Called once, in the writer's thread."""

    def reader(self) -> ReadConnection:
        """Opens a read connection. Called in the thread that will use it."""

    def hints(self) -> Hints | None:
        """Starts listening for what other processes write, None where the database tells nothing. Blocking."""


class MissingExtraError(UsageError):
    """A PostgreSQL address without the driver."""

    code = "missing_extra"
    hint = "Install the extra: pip install 'checkrein[postgresql]'."

    def __init__(self) -> None:
        super().__init__("A PostgreSQL store needs a driver that is not installed.")


def backend_for(target: str | Path, *, busy_seconds: float) -> Backend:
    """The backend of a file path or a `postgresql://` address.

    Raises:
        MissingExtraError: The address is PostgreSQL's and its driver is not installed.
    """
    if not str(target).startswith(SCHEMES):
        return SqliteFile(Path(target), busy_seconds=busy_seconds)
    try:
        # The one import in a function: the driver is an extra, and loading it takes as long as opening a SQLite store.
        from checkpoints.postgresql import PostgresServer
    except ImportError as error:
        raise MissingExtraError from error
    return PostgresServer(str(target), busy_seconds=busy_seconds)
