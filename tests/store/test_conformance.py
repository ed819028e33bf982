"""LangGraph's own suite for savers, base and extended, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from checkpoints.saver import ThreadSaver
from checkpoints.store import open_store

pytestmark = pytest.mark.anyio


async def test_every_capability_of_langgraphs_conformance_suite_passes(address: str) -> None:
    """Base and extended capabilities: nothing failed and nothing was skipped."""

    @checkpointer_test(name="ThreadSaver")
    async def saver() -> AsyncIterator[ThreadSaver]:
        async with open_store(address) as store:
            yield ThreadSaver(store)

    report = await validate(saver)
    failures = {name: result.failures for name, result in report.results.items() if not result.passed}
    assert failures == {}
    assert len(report.results) == 8
