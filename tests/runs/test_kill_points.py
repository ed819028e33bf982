"""The runtime is killed by SIGKILL at random moments; whatever was going on, no effect happens twice, none is lost unsaid."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from checkpoints.clock import fresh_id
from graphs.service import Service
from nodes.context import AgentContext
from nodes.models.script import When
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene

pytestmark = pytest.mark.anyio

PLAIN, SOAK = 16, 500
SHORT = 100
"""Moments in the plain suite, in the soak, and in the soak's shortened form."""


class Nursery:
    """Hands out runtimes that can be killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(GUARD * 2):
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer

    async def started(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        await self._process.stdin.drain()
        return int((await self.heard())["pid"])


@asynccontextmanager
async def nursery(place: Scene) -> AsyncIterator[Nursery]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.runs.nursery",
        env=place.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        found = Nursery(process)
        await found.heard()
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def replies() -> list[Any]:
    """Two commands in parallel and a file edit, then the end; and a greeting for afterwards."""
    work = calls(
        ("execute", {"command": "echo one >> lines"}),
        ("execute", {"command": "echo two >> lines"}),
        ("edit_file", {"path": "note.txt", "old_text": "before", "new_text": "after"}),
    )
    return [
        work.model_copy(update={"times": 0, "when": When(user_contains="Go", tool_results=0)}),
        says("All done.").model_copy(update={"times": 0, "when": When(user_contains="Go", tool_results=3)}),
        says("Hello.").model_copy(update={"times": 0}),
    ]


def order_for(place: Scene) -> tuple[dict[str, Any], Path]:
    """A task on a thread and in a workspace of its own."""
    thread = fresh_id()
    workspace = place.root / "work" / thread
    workspace.mkdir(parents=True)
    (workspace / "note.txt").write_text("before\n")
    context = AgentContext(workspace=str(workspace), review_mode="manual")
    return {"thread": thread, "task": "Go.", "context": context.model_dump(mode="json")}, workspace


async def finish(service: Service, thread: str) -> list[str]:
    """Recovers the thread and answers until it rests; gives the calls that were unknown, which are left as they are."""
    for run in await service.recover():
        await run.wait_stopped(GUARD)
    unknown: list[str] = []
    while pending := (await service.show(thread)).pending:
        [approval] = pending[:1]
        bindings = approval.value["bindings"]
        is_unknown = bindings[0]["reason"] == "its outcome is unknown"
        unknown += [approval.value["action_requests"][0]["args"]["command"]] if is_unknown else []
        decision = {"type": "reject" if is_unknown else "approve"}
        run = await service.decide(thread, [decision] * len(bindings), interrupt_id=approval.interrupt_id)
        await run.wait_stopped(GUARD)
    return unknown


async def check(service: Service, place: Scene, order: dict[str, Any], workspace: Path, unknown: list[str]) -> None:
    """The promises, whatever happened."""
    lines = Counter((workspace / "lines").read_text().split()) if (workspace / "lines").exists() else Counter()
    assert all(count == 1 for count in lines.values()), lines
    missing = {"one", "two"} - set(lines)
    assert all(any(f"echo {word} " in command for command in unknown) for word in missing), (missing, unknown)
    assert (workspace / "note.txt").read_text() == "after\n"
    view = await service.show(order["thread"])
    assert view.info.live_run_id == ""
    for record in view.runs:
        kinds = [event.kind async for event in service.follow(record.run_id)]
        assert kinds.count("run_terminal") == 1
        assert kinds[-1] == "run_terminal"
    hello = await service.submit("hello", thread_id=order["thread"], context=AgentContext(**order["context"]))
    assert await hello.wait_stopped(GUARD) == "completed"
    assert place.model.requests[-1].status == 200


async def kill_at_random(root: Path, moments: int, seed: int, store: str = "") -> Counter[str]:
    """Plays the scenario again and again, each time killed at another moment; gives what was seen."""
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    async with scene(root, replies(), store) as place, opened(place) as service, nursery(place) as runtimes:
        order, workspace = order_for(place)
        began = time.monotonic()
        await runtimes.started(order)
        assert (await runtimes.heard())["code"] == 0
        whole = time.monotonic() - began
        await check(service, place, order, workspace, [])
        for _ in range(moments):
            order, workspace = order_for(place)
            handle = os.pidfd_open(await runtimes.started(order))
            await asyncio.sleep(chance.uniform(0, whole))
            with suppress(ProcessLookupError):  # it was done already
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
            await runtimes.heard()
            if await service.knows(order["thread"]):
                unknown = await finish(service, order["thread"])
                if not (await service.show(order["thread"])).messages:
                    seen["died before the first checkpoint"] += 1
                await check(service, place, order, workspace, unknown)
                seen["killed while it ran"] += 1
                seen["calls reported unknown"] += len(unknown)
            else:
                seen["killed before the admission"] += 1
    return seen


@pytest.mark.timeout(300)
async def test_no_effect_twice_and_none_lost_unsaid_whenever_the_runtime_dies(tmp_path: Path, store_address: str) -> None:
    """S15, S16, S17, S51: a few random moments over a model call, an approval, two commands, an edit and an answer."""
    seen = await kill_at_random(tmp_path, PLAIN, 1, store_address)
    assert seen["killed while it ran"] > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_no_effect_twice_over_many_kill_points(tmp_path: Path, store_address: str) -> None:
    """S15, S16, S17, S51: 500 random moments on each store, or 100 in the shortened form."""
    moments = SHORT if os.environ.get("CHECKREIN_SOAK") == "short" else SOAK
    seen = await kill_at_random(tmp_path, moments, random.randrange(2**32), store_address)
    print(dict(seen))
    assert seen["killed while it ran"] > moments / 3
    assert seen["calls reported unknown"] > 0
