"""Stores for the tests: one SQLite file each, or one database each on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from checkpoints.store import Store, open_store
from tests.store.servers import BINARIES, PostgresForTests


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    """A server for the whole session; each test takes a database of its own."""
    if not BINARIES:
        pytest.skip("PostgreSQL's binaries are not installed (Debian's package postgresql)")
    server = PostgresForTests()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store is to be, of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    server: PostgresForTests = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    """An open store of either kind."""
    async with open_store(address) as opened:
        yield opened
