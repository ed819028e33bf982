"""A runtime that has run many commands holds what it held before; one that waits or has ended its runs holds no process."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from nodes.processes.forkserver import tree
from tests.runs.scene import GUARD, alive, calls, opened, says, scene
from tests.teardown.looking import bypassing, ended_once, native_of, running, unique_seconds

pytestmark = pytest.mark.anyio

COMMANDS = 300
IN_ONE_TURN = 25


def held() -> tuple[int, int, int]:
    """Open descriptors, zombie children, and threads of this process."""
    children = tree.children_from_files(os.getpid())
    zombies = sum(1 for pid in children if (stat := tree.stat_of(pid)) and not stat.alive)
    return descriptors("self"), zombies, threading.active_count()


def descriptors(process: object) -> int:
    """How many a process has open."""
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


async def rested(spawner: int) -> int:
    """Waits until a spawner has no child but the guard that it keeps ready for the next command; gives its descriptors."""
    async with asyncio.timeout(GUARD):
        while len(list(tree.children_from_files(spawner))) != 1:
            await asyncio.sleep(0.01)
    return descriptors(spawner)


@pytest.mark.timeout(120)
async def test_three_hundred_commands_leak_no_descriptor_zombie_thread_or_task(tmp_path: Path) -> None:
    """Through the graph, each with a leftover that has to be killed; runtime and spawner are looked at."""
    turn = calls(*[("execute", {"command": "sleep 600 & echo x"})] * IN_ONE_TURN).model_copy(update={"times": 0})
    rounds = COMMANDS // IN_ONE_TURN
    replies = [turn.model_copy(update={"times": 1}), says("Done."), turn.model_copy(update={"times": rounds}), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        context = bypassing(place).model_copy(update={"max_tool_calls": 1000})
        first = await service.submit("Go.", context=context)
        assert await first.wait_stopped(GUARD) == "completed"
        link = native_of(service)._processes._link
        assert link is not None
        spawner = link.result().pid
        before, before_spawner = held(), await rested(spawner)
        run = await service.submit("Go.", context=context)
        assert await run.wait_stopped(GUARD * 3) == "completed"
        await ended_once(service, run)
        after, after_spawner = held(), await rested(spawner)
        assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
        assert after_spawner == before_spawner
        native = native_of(service)
        assert native._held == native._settling == native._notes == {}
        assert native._processes.active == ()
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in names if name.startswith(("settle-", "enter-", "end of scope", "run-", "graph-"))]


async def test_a_run_that_parks_leaves_no_kernel_and_no_background_command(tmp_path: Path) -> None:
    """Promise 6: a waiting run costs no process, whatever its task had started before it asked."""
    seconds = unique_seconds()
    cell = "import os\nopen('kernel', 'w').write(str(os.getpid()))"
    replies = [
        calls(("python", {"code": cell}), ("execute", {"command": f"sleep {seconds}", "background": True})),
        calls(("execute", {"command": "touch made"})),
        says("Done."),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await service.submit("Go.", context=place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        run = await service.decide(run.thread_id, [{"type": "approve"}] * 2)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        assert not alive(int((place.workspace / "kernel").read_text()))
        assert running(seconds) == []
        assert native_of(service)._processes.active == ()
