"""A runtime dies by SIGKILL; another process finds its run, and goes on with it or settles it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from checkpoints.leases import LeaseJudge
from checkpoints.run_errors import ThreadBusyError
from tests.runs.scene import GUARD, Scene, alive, calls, opened, says, scene

pytestmark = pytest.mark.anyio

DOOMED = """
import asyncio, sys
from graphs.client import open_checkrein
from nodes.context import AgentContext

async def main():
    async with open_checkrein() as service:
        run = await service.submit("Go.", context=AgentContext(workspace=sys.argv[1], sandbox=sys.argv[3]))
        print(run.thread_id, flush=True)
        if sys.argv[2] == "approve":
            await run.wait_stopped(30)
            run = await service.decide(run.thread_id, [{"type": "approve"}])
            print(run.run_id, flush=True)
        await run.wait_stopped(60)

asyncio.run(main())
"""


@asynccontextmanager
async def doomed(place: Scene, how: str, sandbox: str = "") -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A runtime of its own that works on a thread until it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DOOMED, str(place.workspace), how, sandbox, env=place.environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(GUARD):
            thread_id = (await process.stdout.readline()).decode().strip()
            if how == "approve":
                await process.stdout.readline()
        yield process, thread_id
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def killed(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def gone(pid: int) -> None:
    """Waits until a process has ended."""
    async with asyncio.timeout(GUARD):
        while alive(pid):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("decision", "executions"), [("approve", 2), ("reject", 1), ("respond", 1)])
async def test_a_command_that_was_cut_off_by_a_crash_is_unknown_and_asks(
    tmp_path: Path, decision: str, executions: int
) -> None:
    """S17, S47: the tree dies with its runtime; the call is never silently run again, a person says what becomes of it."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat, "timeout": 5})), says("Done.")]) as place:
        async with doomed(place, "approve") as (process, thread_id):
            grandchild = await place.beating()
            await killed(process)
        await gone(grandchild)
        async with opened(place) as service:
            [run] = await service.recover()
            assert await run.wait_stopped(GUARD) == "awaiting_input"
            [approval] = (await service.show(thread_id)).pending
            assert "Nobody knows whether it had an effect" in approval.value["action_requests"][0]["description"]
            assert approval.value["review_configs"][0]["allowed_decisions"] == ["approve", "reject", "respond"]
            assert place.executions == 1
            message = {"message": "it ran"} if decision == "respond" else {}
            again = await service.decide(thread_id, [{"type": decision, **message}])
            assert await again.wait_stopped(GUARD) == "completed"
            assert place.executions == executions


async def test_a_run_that_died_in_a_model_call_goes_on_by_itself(tmp_path: Path) -> None:
    """Recovery continues from the checkpoint: the model is asked again, and nothing is lost."""
    replies = [says("never").model_copy(update={"hang": True}), says("Here I am.")]
    async with scene(tmp_path, replies) as place:
        async with doomed(place, "submit") as (process, thread_id):
            async with asyncio.timeout(GUARD):
                while not place.model.requests:
                    await asyncio.sleep(0.01)
            await killed(process)
        async with opened(place) as service:
            [run] = await service.recover()
            assert await run.wait_stopped(GUARD) == "completed"
            view = await service.show(thread_id)
            assert [message.type for message in view.messages] == ["human", "ai"]
            kinds = [event.kind async for event in run.stream()]
            assert kinds.count("run_terminal") == 1
            assert "run_recovered" in kinds


async def test_a_cancel_of_a_run_whose_owner_died_settles_run_and_thread(tmp_path: Path) -> None:
    """S49: outcome cancelled, and the next run starts."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat})), says("Hello.")]) as place:
        async with doomed(place, "approve") as (process, thread_id):
            grandchild = await place.beating()
            await killed(process)
        async with opened(place) as service:
            assert await service.cancel(thread_id, "it is dead") == "cancelled"
            assert not alive(grandchild)
            run = await service.submit("hello", thread_id=thread_id, context=place.context)
            assert await run.wait_stopped(GUARD) == "completed"
            assert place.executions == 1


async def test_a_message_to_a_thread_whose_owner_died_settles_the_old_run_first(tmp_path: Path) -> None:
    """A thread is always usable next time: the lost run ends as failed, and the new one is accepted."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat})), says("Hello.")]) as place:
        async with doomed(place, "approve") as (process, thread_id):
            await place.beating()
            await killed(process)
        async with opened(place) as service:
            run = await service.submit("hello", thread_id=thread_id, context=place.context)
            assert await run.wait_stopped(GUARD) == "completed"
            view = await service.show(thread_id)
            assert [str(record.status) for record in view.runs] == ["completed", "failed", "awaiting_input"]
            assert view.runs[1].cause is not None
            assert view.runs[1].cause.kind == "lost"


async def test_a_live_owner_is_left_alone_and_can_be_cancelled_from_here(tmp_path: Path) -> None:
    """S17: the second worker sees the live lease; a cancel goes through the ledger to the process that runs it."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat}))]) as place:
        async with doomed(place, "approve") as (_, thread_id), opened(place) as service:
            grandchild = await place.beating()
            assert await service.recover() == []
            assert await LeaseJudge(service.store, lease_seconds=60).orphans() == ()
            with pytest.raises(ThreadBusyError):
                await service.submit("hello", thread_id=thread_id, context=place.context)
            assert await service.cancel(thread_id, "from another process") == "cancelled"
            assert not alive(grandchild)
            assert place.executions == 1


async def test_a_session_is_idle_again_once_its_dead_run_is_settled(tmp_path: Path) -> None:
    """BOT-6: `running` is what the killed runtime left behind; whoever settles the run says `idle`."""
    async with scene(tmp_path, []) as empty:
        beat = empty.heartbeat_command()
    async with scene(tmp_path, [calls(("execute", {"command": beat}))]) as place:
        async with doomed(place, "approve", "team") as (process, thread_id):
            await place.beating()
            await killed(process)
        async with opened(place) as service:
            assert [session.status for session in await service.sessions()] == ["running"]
            assert await service.cancel(thread_id, "it is dead") == "cancelled"
            assert [session.status for session in await service.sessions()] == ["idle"]
