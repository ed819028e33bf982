"""The seam between what is remembered and the database that remembers it: one transaction, seen as `execute`.

SQL is written once, in the part that SQLite and PostgreSQL share: `?` for parameters, `ON CONFLICT`, `RETURNING`. What
differs (types in migrations, row locks) is an attribute here or a file per dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Row = tuple[Any, ...]
P = ParamSpec("P")
T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Tx(Protocol):
    """One open transaction. Used in the thread that opened it, and only until the operation returns."""

    for_update: str
    """Appended to a SELECT whose row is about to change ("" where one writer at a time is given anyway)."""

    for_share: str
    """Appended to a SELECT whose row must stay as it is until the commit."""

    def execute(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Runs one statement and gives its rows; an empty list when it has none."""


Operation = Callable[Concatenate[Tx, P], T]
"""What `Store.write` and `Store.read` take: pure but for the transaction, since it may be run again after a lost one."""


def stamp(instant: datetime) -> int:
    """An aware instant as microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def optional_stamp(instant: datetime | None) -> int | None:
    """`stamp`, or None."""
    return None if instant is None else stamp(instant)


def instant(microseconds: int) -> datetime:
    """The other way round."""
    return EPOCH + timedelta(microseconds=microseconds)


def optional_instant(microseconds: int | None) -> datetime | None:
    """`instant`, or None."""
    return None if microseconds is None else instant(microseconds)


def one(rows: list[Row]) -> Row | None:
    """The only row, or None."""
    return rows[0] if rows else None
