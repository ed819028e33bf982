"""Stopping a scope: cancelled twice, in the same tick as the end, before the start, beside a failing sibling."""

from __future__ import annotations

import asyncio
import time

import pytest

from nodes.processes.processes import Processes
from nodes.processes.scope import Scope
from nodes.processes.verdict import Reason
from tests.processes.living import carriers, shell

pytestmark = pytest.mark.anyio

TREE = "(setsid sleep 60 & setsid sleep 61 &) ; echo up; sleep 62"


async def _up(scope: Scope) -> None:
    async for lines in scope.lines():
        if "up" in lines.text:
            return


async def test_a_cancelled_run_goes_through_only_when_its_scope_is_empty(processes: Processes) -> None:
    task = asyncio.create_task(processes.run(shell(TREE)))
    while not processes.active:
        await asyncio.sleep(0)
    (scope,) = processes.active
    await _up(scope)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scope.verdict is not None
    assert (scope.verdict.reason, scope.verdict.empty) == (Reason.CANCEL, True)
    assert scope.verdict.killed >= 3
    assert carriers(scope.identity.tag) == []


async def test_a_second_cancel_does_not_cut_the_stop_short(processes: Processes) -> None:
    task = asyncio.create_task(processes.run(shell(TREE)))
    while not processes.active:
        await asyncio.sleep(0)
    (scope,) = processes.active
    await _up(scope)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scope.verdict is not None
    assert scope.verdict.empty


async def test_stopping_twice_at_once_and_again_later_gives_one_verdict(processes: Processes) -> None:
    scope = await processes.start(shell(TREE))
    first, second = await asyncio.gather(scope.stop(Reason.OWNER_ENDED), scope.stop())
    third = await scope.stop()
    assert first is second is third
    assert first.reason == Reason.OWNER_ENDED


async def test_a_cancel_in_the_same_tick_as_the_end_keeps_one_verdict(processes: Processes) -> None:
    scope = await processes.start(shell("exit 7"))
    waiter = asyncio.create_task(scope.wait())
    verdict = await scope.wait()
    waiter.cancel()
    await asyncio.wait([waiter])
    assert await scope.stop() is verdict
    assert (verdict.reason, verdict.exit_code) == (Reason.EXIT, 7)


async def test_a_cancel_before_the_start_is_answered_leaves_nothing(processes: Processes) -> None:
    """S50: a cancel that arrives while the child is being set up is not wiped by the start."""
    await processes.containment()
    for turns in range(12):
        task = asyncio.create_task(processes.start(shell(TREE)))
        for _ in range(turns):
            await asyncio.sleep(0)
        scopes = processes.active
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert processes.active == ()
        assert all(scope.verdict is not None and scope.verdict.empty for scope in scopes)
        assert all(carriers(scope.identity.tag) == [] for scope in scopes)


async def test_a_cancel_before_the_spawner_exists_leaves_a_usable_runtime() -> None:
    async with Processes() as opened:
        task = asyncio.create_task(opened.start(shell(TREE)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        _, verdict = await opened.run(shell("exit 0"))
        assert verdict.exit_code == 0


async def test_a_failing_sibling_takes_the_scope_with_it(processes: Processes) -> None:
    async def fail_when_up() -> None:
        while not processes.active:
            await asyncio.sleep(0)
        await _up(processes.active[0])
        raise RuntimeError("sibling")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(processes.run(shell(TREE)))
            group.create_task(fail_when_up())

    with pytest.raises(ExceptionGroup) as caught:
        await both()
    assert caught.group_contains(RuntimeError, match="sibling")
    assert processes.active == ()


async def test_the_end_of_the_loop_in_the_middle_of_a_run_still_waits_for_the_verdict() -> None:
    """What asyncio.run does at Ctrl-C: every task is cancelled at once, those that watch a scope included."""
    async with Processes() as opened:
        tasks = [asyncio.create_task(opened.run(shell(TREE))) for _ in range(3)]
        while len(opened.active) < 3:
            await asyncio.sleep(0)
        scopes = opened.active
        for scope in scopes:
            await scope.begun()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task in tasks or (task.get_name() or "").startswith("end of scope"):
                task.cancel()
        await asyncio.wait(tasks)
        assert all(scope.verdict is not None and scope.verdict.empty for scope in scopes)


async def test_a_stop_is_quick_also_for_forty_sessions(processes: Processes) -> None:
    scope = await processes.start(shell("for i in $(seq 40); do setsid sleep 60 & done; echo up; sleep 60"))
    await _up(scope)
    began = time.monotonic()
    verdict = await scope.stop()
    assert time.monotonic() - began < 2
    assert verdict.empty
    assert verdict.killed >= 41
