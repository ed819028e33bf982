"""A store that refuses a run's events for a moment: the run ends as failed, with the store's reason, and only once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodes.models.script import ScriptedReply
from tests.accounting.ledgers import freely, saw, told, working
from tests.accounting.test_endings import refusing, usable
from tests.runs.scene import says

pytestmark = pytest.mark.anyio

SLOW = ScriptedReply(text="one two three", pause=0.3)


async def test_events_that_are_not_taken_end_the_run_once_as_failed(tmp_path: Path) -> None:
    """S59: the store was the first cause, nobody cancelled, and the thread goes on in the same runtime."""
    async with working(tmp_path, [SLOW, says("Hello.")]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        await saw(run, "token")
        [recorder] = [task for task in asyncio.all_tasks() if task.get_name() == f"recorder-{run.run_id}"]
        with refusing(place, "events"):
            await asyncio.wait({recorder})
        ended = await told(run, "failed")
        assert ended.terminal["cause"] == "failure"
        assert ended.terminal["error"]["code"].startswith("store")
        await usable(place, service, run.thread_id)
