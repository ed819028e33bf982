"""Stores for the tests: one SQLite file each, or one database each on a real PostgreSQL server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints.store import Store, open_store
from tests.store.servers import PostgresForTests


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


class Racer:
    """A process that does what it is asked, one request at a time (racer.py). Starting one takes a second."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.racer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def __call__(self, request: dict[str, Any]) -> dict[str, str]:
        return await asyncio.to_thread(self._ask, request)

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, request: dict[str, Any]) -> dict[str, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))


@pytest.fixture(scope="session")
def racers() -> Iterator[list[Racer]]:
    """Four processes for the whole session."""
    processes = [Racer() for _ in range(4)]
    yield processes
    for process in processes:
        process.close()
