"""Awkward moments of an ending through the real graph: whatever meets whatever, one verdict, one ending, and nothing lives."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import pytest

from graphs.client import open_checkrein
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult
from tests.processes import corpus
from tests.processes.corpus import Person, beats
from tests.runs.scene import GUARD, Scene, alive, calls, opened, says, scene
from tests.teardown.looking import bypassing, effects_of, ended_once, events_of, native_of, running, scope_of, unique_seconds
from tests.teardown.trials import LATEST_EFFECT, RunTrial

pytestmark = pytest.mark.anyio


def tree(seconds: str) -> str:
    """A command with a child that leaves its session."""
    return f"(setsid sleep {seconds} &); sleep {seconds}"


UNTIL_TOLD = "while [ ! -e go ]; do sleep 0.01; done"
"""A command that ends once its workspace has a file `go`."""


async def test_cancelled_many_times_it_ends_once(tmp_path: Path) -> None:
    """Promise 2: every cancel returns the one outcome, after the proof."""
    seconds = unique_seconds()
    async with scene(tmp_path, [calls(("execute", {"command": tree(seconds)}))]) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place))
        await scope_of(service)
        outcomes = await asyncio.gather(*(run.cancel(f"enough {number}") for number in range(3)))
        assert set(outcomes) == {"cancelled"}
        assert running(seconds) == []
        assert await run.cancel("once more") == "cancelled"
        payload = await ended_once(service, run)
        assert payload["reason"].startswith("enough")
        assert "cleanup_errors" not in payload


async def test_the_result_of_a_cancelled_command_is_in_the_journal_and_in_the_events(tmp_path: Path) -> None:
    """Promise 5: what was killed is written down with its proof."""
    seconds = unique_seconds()
    async with scene(tmp_path, [calls(("execute", {"command": f"echo half; {tree(seconds)}"}))]) as place:
        async with opened(place) as service:
            run = await service.submit("Go.", context=bypassing(place))
            scope = await scope_of(service)
            async with asyncio.timeout(GUARD):
                while "half" not in scope.output.text:
                    await asyncio.sleep(0.005)
            assert await run.cancel("enough") == "cancelled"
            [effect] = await effects_of(service, run)
            assert effect.result["content"].startswith("half\n[cancelled: killed")
            assert (effect.result["details"]["reason"], effect.result["details"]["empty"]) == ("cancel", True)
            [told] = [event.payload for event in await events_of(service, run) if event.kind == "tool.complete"]
            assert told["details"]["empty"] is True
            assert told["result"] == effect.result["content"]


async def test_a_cancel_in_the_tick_of_the_exit_leaves_one_verdict(tmp_path: Path) -> None:
    """Promise 2: the graph's task is cancelled in the very turn of the loop that hears the verdict."""
    async with scene(tmp_path, [calls(("execute", {"command": UNTIL_TOLD}))]) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place).model_copy(update={"sandbox": "tick"}))
        scope = await scope_of(service)
        (Path((await service.sessions())[0].workspace) / "go").touch()
        await scope.wait()
        assert run._graph is not None
        run._graph.cancel()
        assert await run.wait_stopped(GUARD) == "cancelled"
        await ended_once(service, run)
        [effect] = await effects_of(service, run)
        assert effect.result["details"]["reason"] == "exit"
        assert [session.status for session in await service.sessions()] == ["idle"]


async def test_a_cancel_around_the_exit_leaves_one_verdict(tmp_path: Path) -> None:
    """Promise 2: a few moments before and after the end of a short command."""
    replies = [calls(("execute", {"command": UNTIL_TOLD})).model_copy(update={"times": 0})]
    chance = random.Random(3)
    async with scene(tmp_path, replies, strict=False) as place, opened(place) as service:
        for _ in range(8):
            run = await service.submit("Go.", context=bypassing(place))
            await scope_of(service)
            (place.workspace / "go").touch()
            await asyncio.sleep(chance.uniform(0, 0.025))
            assert await run.cancel("enough") == "cancelled"
            (place.workspace / "go").unlink()
            await ended_once(service, run)
        assert native_of(service)._held == native_of(service)._settling == native_of(service)._notes == {}


async def test_a_run_that_is_cancelled_while_its_command_starts_leaves_nothing(tmp_path: Path) -> None:
    """S50: at random moments from the submission on, many of them between the request to the spawner and the start."""
    seconds = unique_seconds()
    replies = [calls(("execute", {"command": tree(seconds)})).model_copy(update={"times": 0})]
    chance = random.Random(5)
    async with scene(tmp_path, replies) as place, opened(place) as service:
        for _ in range(15):
            run = await service.submit("Go.", context=bypassing(place))
            await asyncio.sleep(chance.uniform(0, 0.08))
            assert await run.cancel("enough") == "cancelled"
            assert running(seconds) == []
            await ended_once(service, run)


async def test_a_cancel_before_the_spawn_is_not_wiped_by_it(tmp_path: Path) -> None:
    """S50: the spawner is held up, the run is cancelled, the spawner goes on: the command never runs."""
    replies = [calls(("execute", {"command": UNTIL_TOLD})), calls(("execute", {"command": "touch ran; sleep 60"}))]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place))
        await scope_of(service)
        link = native_of(service)._processes._link
        assert link is not None
        os.kill(link.result().pid, signal.SIGSTOP)
        try:
            (place.workspace / "go").touch()
            async with asyncio.timeout(GUARD):
                while native_of(service)._held or len(native_of(service)._processes.active) != 1:
                    await asyncio.sleep(0.005)
            cancelling = asyncio.create_task(run.cancel("enough"))
            await asyncio.wait([cancelling], timeout=0.2)
        finally:
            os.kill(link.result().pid, signal.SIGCONT)
        assert await cancelling == "cancelled"
        await ended_once(service, run)
        assert not (place.workspace / "ran").exists()
        assert native_of(service)._processes.active == ()


class NoArguments(Arguments):
    """None."""


def failing(place: Scene) -> Tool:
    """A tool with a fault of its own, once the heart beats."""

    async def fail(_: NoArguments, __: CallSite) -> ToolResult:
        await place.beating()
        raise ZeroDivisionError("a fault of the tool")

    return Tool(name="fail", description="Fails.", arguments=NoArguments, effect=Effect.NONE, run=fail)


async def test_a_sibling_that_fails_takes_the_command_with_it(tmp_path: Path) -> None:
    """Promises 2 and 5: the run fails once, and the command beside the failing call is gone with a result."""
    async with scene(tmp_path, []) as bare:
        command = bare.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": command}), ("fail", {}))]) as place:
        async with open_checkrein(settings=place.settings, tools=[failing(place)]) as service:
            run = await service.submit("Go.", context=bypassing(place))
            assert await run.wait_stopped(GUARD) == "failed"
            assert not alive(await place.beating())
            [effect] = await effects_of(service, run)
            assert effect.result["details"]["empty"] is True
            events = await events_of(service, run)
            assert [event.kind for event in events].count("run_terminal") == 1
            assert "ZeroDivisionError" in json.dumps(events[-1].payload)


async def test_a_guard_that_vanishes_is_reported_as_containment_lost(tmp_path: Path) -> None:
    """Promise 5: no proof, no claim: the result, the event and the run's ending say so."""
    seconds = unique_seconds()
    replies = [calls(("execute", {"command": f"exec sleep {seconds}"})), says("Done.")]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place))
        scope = await scope_of(service)
        os.kill(scope.identity.guard, signal.SIGKILL)
        assert await run.wait_stopped(GUARD) == "completed"
        payload = await ended_once(service, run)
        assert len(payload["cleanup_errors"]) == 1
        assert "containment lost" in payload["cleanup_errors"][0]
        [told] = [event.payload for event in await events_of(service, run) if event.kind == "tool.complete"]
        assert (told["details"]["reason"], told["details"]["empty"]) == ("lost", False)
        assert "CONTAINMENT LOST" in told["result"]
        [answer] = [message for message in (await service.show(run.thread_id)).messages if message.type == "tool"]
        assert "CONTAINMENT LOST" in str(answer.content)
        assert running(seconds) == []  # what can be found of a lost scope is killed all the same


def test_the_timeout_of_a_command_fires_while_the_runtime_is_stopped(
    people: dict[str, Person | str], folder: Path, tight: Path | None
) -> None:
    """The guard keeps the time. The promise is 150 ms, which the benchmark measures; a busy machine gets more here."""
    person = people["root"]
    if isinstance(person, str):
        pytest.skip(person)
    trial = RunTrial("root", person, "timeout", folder, tight, names=["plain"], timeout=2.0)
    assert trial.runtime.stdout
    with trial.runtime as runtime:
        assert runtime.stdout.readline() == "up\n"
        runtime.send_signal(signal.SIGSTOP)
        signal.sigtimedwait([], LATEST_EFFECT + 0.5)
        lines = beats(trial.files["plain"])
        still = {int(found.split()[0]) for found in corpus.marked(trial.group)}
        runtime.send_signal(signal.SIGCONT)
        found = json.loads(runtime.stdout.read())["plain"]
    assert (lines[-1][1] - lines[0][1]) / 1e9 < 2.0 + 0.15 + 0.5
    assert still.isdisjoint(pid for pid, _ in lines)
    assert [details["reason"] for details in found["completed"]] == ["timeout"]
