"""Fixtures of the process tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nodes.processes.processes import Processes


@pytest.fixture
async def processes(anyio_backend: str) -> AsyncIterator[Processes]:
    async with Processes() as opened:
        yield opened
    assert opened.active == ()
