"""Where the runs of a test are remembered."""

from __future__ import annotations

import pytest

from tests.store.servers import PostgresForTests


@pytest.fixture(params=["sqlite", "postgresql"])
def store_address(request: pytest.FixtureRequest) -> str:
    """An address for the scene: empty for a file of its own, or a new database on a real server."""
    if request.param == "sqlite":
        return ""
    server: PostgresForTests = request.getfixturevalue("postgres")
    return server.new_database()
