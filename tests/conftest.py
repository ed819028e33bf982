"""What every area of the tests shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.servers import BINARIES, PostgresForTests


@pytest.fixture
def anyio_backend() -> str:
    """The runtime is asyncio's; LangGraph's own tasks are too."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    """A server for the whole session; each test takes a database of its own."""
    if not BINARIES:
        pytest.skip("PostgreSQL's binaries are not installed (Debian's package postgresql)")
    server = PostgresForTests()
    yield server
    server.remove()
