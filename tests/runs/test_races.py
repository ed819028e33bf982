"""Two processes on one thread at the same moment: one winner, a typed conflict for the other, one effect."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nodes.models.script import When
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene

pytestmark = pytest.mark.anyio

ROUNDS, SOAK = 50, 100
CONFLICTS = {"approval_decided", "stale_fence", "checkpoint_moved", "thread_busy", "nothing_waits"}


class Racer:
    """One process that obeys orders."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def heard(self) -> dict[str, Any]:
        """Its next answer."""
        async with asyncio.timeout(GUARD * 2):
            answer: dict[str, Any] = json.loads(await self._stdout.readline())
        return answer

    async def told(self, order: dict[str, Any]) -> dict[str, Any]:
        """Gives an order and waits for the answer."""
        self._stdin.write(json.dumps(order).encode() + b"\n")
        await self._stdin.drain()
        return await self.heard()


@asynccontextmanager
async def racers(place: Scene) -> AsyncIterator[tuple[Racer, Racer]]:
    """Two processes over the scene's store."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.runs.racer",
            env=place.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    try:
        first, second = (Racer(process) for process in processes)
        await asyncio.gather(first.heard(), second.heard())
        yield first, second
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.gather(*(process.wait() for process in processes))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("other", "rounds"), [("approve", ROUNDS), ("reject", 8), ("message", 8)])
async def test_two_processes_on_one_approval_have_one_winner(
    tmp_path: Path, store_address: str, other: str, rounds: int
) -> None:
    """EVO-15, EVO-16, S01: 50 approvals against approvals, and some against a rejection and against a new message."""
    await race(tmp_path, store_address, other, rounds)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("other", ["approve", "reject", "message"])
async def test_many_races_have_one_winner_each(tmp_path: Path, store_address: str, other: str) -> None:
    """EVO-15, EVO-16: 100 of each kind on each store."""
    await race(tmp_path, store_address, other, SOAK)


async def race(root: Path, store: str, other: str, rounds: int) -> None:
    ask = calls(("execute", {"command": "echo ran >> executions"})).model_copy(update={"times": 0})
    replies = [
        ask.model_copy(update={"when": When(tool_results=0, user_contains="Go")}),
        says("Done.").model_copy(update={"times": 0}),
    ]
    async with scene(root, replies, store) as place, opened(place) as service, racers(place) as (first, second):
        ran = 0
        for _ in range(rounds):
            run = await service.submit("Go.", context=place.context)
            assert await run.wait_stopped(GUARD) == "awaiting_input"
            approve = {"thread": run.thread_id, "decisions": [{"type": "approve"}]}
            against = {
                "approve": approve,
                "reject": {"thread": run.thread_id, "decisions": [{"type": "reject"}]},
                "message": {"thread": run.thread_id, "task": "Stop.", "context": place.context.model_dump(mode="json")},
            }[other]
            told = await asyncio.gather(first.told(approve), second.told(against))
            winners = [answer for answer in told if answer["won"]]
            losers = [answer for answer in told if not answer["won"]]
            assert len(winners) >= 1, told
            assert all(answer["outcome"] == "completed" for answer in winners), told
            assert all(answer["code"] in CONFLICTS for answer in losers), told
            ran += 1 if told[0]["won"] or (other == "approve" and told[1]["won"]) else 0
            if other != "message":
                assert len(winners) == 1, told
            assert place.executions == ran, told
