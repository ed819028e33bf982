"""The numbered steps from an empty database to the current store, one SQL file each, per dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources

from checkpoints.store_errors import NotAStoreError, StoreVersionError
from checkpoints.tx import Tx, one

VERSION_KEY = "version"


def known_version(dialect: str) -> int:
    """The version that this program's files lead to."""
    return max(_files(dialect))


def migrate(tx: Tx, dialect: str, store: str, *, stored: int) -> None:
    """Brings the store from version `stored` (0 for an empty database) to the newest one, in the caller's transaction.

    Raises:
        StoreVersionError: It is newer than this program.
    """
    files = _files(dialect)
    newest = max(files)
    if stored > newest:
        raise StoreVersionError(store, found=stored, known=newest)
    for number in range(stored + 1, newest + 1):
        for statement in statements(files[number]):
            tx.execute(statement)
    if stored < newest:
        tx.execute(
            "INSERT INTO store_info (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (VERSION_KEY, str(newest)),
        )


def stored_version(tx: Tx, store: str) -> int:
    """The version that a database with a `store_info` table says it has.

    Raises:
        NotAStoreError: It says none.
    """
    row = one(tx.execute("SELECT value FROM store_info WHERE name = ?", (VERSION_KEY,)))
    if row is None or not str(row[0]).isdigit():
        raise NotAStoreError(store, "its store_info has no version")
    return int(row[0])


def statements(script: str) -> Iterator[str]:
    """The script's statements, comment lines dropped. A statement ends where a line ends with a semicolon.

    Raises:
        ValueError: Text is left over behind the last semicolon.
    """
    pending: list[str] = []
    for line in script.splitlines():
        if line.strip() and not line.lstrip().startswith("--"):
            pending.append(line)
            if line.endswith(";"):
                yield "\n".join(pending)
                pending = []
    if pending:
        raise ValueError(f"a migration ends in the middle of a statement: {pending[0]}")


def _files(dialect: str) -> dict[int, str]:
    folder = resources.files(__name__) / dialect
    found = ((re.fullmatch(r"(\d{4})_\w+\.sql", entry.name), entry) for entry in folder.iterdir())
    return {int(match[1]): entry.read_text("utf-8") for match, entry in found if match}
