"""Background commands, Python cells and sandbox sessions through the real graph."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from graphs.run import Run
from graphs.service import Service
from nodes.context import AgentContext
from tests.runs.scene import GUARD, Scene, alive, calls, opened, says, scene

pytestmark = pytest.mark.anyio


def bypassing(place: Scene, **changes: object) -> AgentContext:
    """A context that asks for nothing, for what is not about approvals."""
    return place.context.model_copy(update={"yolo": True, **changes})


async def started(service: Service, place: Scene, context: AgentContext, thread_id: str = "") -> Run:
    return await service.submit("Go.", thread_id=thread_id, context=context)


async def results(service: Service, run: Run) -> list[str]:
    return [str(message.content) for message in (await service.show(run.thread_id)).messages if message.type == "tool"]


async def pid_in(file: Path) -> int:
    async with asyncio.timeout(GUARD):
        while not (file.exists() and file.read_text().strip()):
            await asyncio.sleep(0.01)
    return int(file.read_text())


SERVER = "echo $$ > pid; echo ready; sleep 60"


async def test_a_background_command_asks_like_any_other(tmp_path: Path) -> None:
    """S24: the gate is at the execution seam; `background` is no way round it."""
    async with scene(tmp_path, [calls(("execute", {"command": SERVER, "background": True}))]) as place:
        async with opened(place) as service:
            run = await service.submit("Go.", context=place.context)
            assert await run.wait_stopped(GUARD) == "awaiting_input"
            assert not (place.workspace / "pid").exists()


async def test_a_background_command_lives_as_long_as_its_run(tmp_path: Path) -> None:
    """S48: an explicit handle: read, listed, and killed with the end of the run."""
    replies = [
        calls(("execute", {"command": SERVER, "background": True})),
        calls(("execute", {"command": "while [ ! -s pid ]; do sleep 0.01; done"})),
        calls(("process_output", {"name": "p1"}), ("process_list", {}), ("process_output", {"name": "p9"})),
        says("Done."),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await started(service, place, bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        texts = await results(service, run)
        assert "started in the background as p1" in texts[0]
        assert "running" in texts[2]
        assert "p1:" in texts[3]
        assert "no background process 'p9'" in texts[4]
        assert not alive(await pid_in(place.workspace / "pid"))


async def test_a_background_command_can_be_stopped_by_the_model(tmp_path: Path) -> None:
    """process_stop kills the tree and says so with proof."""
    replies = [
        calls(("execute", {"command": SERVER, "background": True})),
        calls(("execute", {"command": "while [ ! -s pid ]; do sleep 0.01; done"})),
        calls(("process_stop", {"name": "p1"})),
        says("Done."),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await started(service, place, bypassing(place))
        assert await run.wait_stopped(GUARD) == "completed"
        assert "(cancel" in (await results(service, run))[2]


async def test_a_cancel_kills_background_commands_too(tmp_path: Path) -> None:
    """S24, promise 5: nothing of the run is alive after its cancel."""
    replies = [
        calls(("execute", {"command": SERVER, "background": True})),
        calls(("execute", {"command": "sleep 60"})),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await started(service, place, bypassing(place))
        pid = await pid_in(place.workspace / "pid")
        assert await run.cancel("enough") == "cancelled"
        assert not alive(pid)


async def test_a_session_keeps_its_workspace_and_what_was_started_for_it(tmp_path: Path) -> None:
    """BOT-6: one id per reuse key, idle after every run, the folder kept, a session's process outlives the run."""
    replies = [
        calls(("execute", {"command": SERVER, "background": True, "keep": "session"})),
        calls(("execute", {"command": "while [ ! -s pid ]; do sleep 0.01; done; pwd > where"})),
        says("Done."),
        calls(("execute", {"command": "cat where"}), ("process_output", {"name": "p1"})),
        says("Done."),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        context = AgentContext(sandbox="team-a", yolo=True)
        first = await started(service, place, context)
        assert await first.wait_stopped(GUARD) == "completed"
        [session] = await service.sessions()
        assert session.session_id == f"runner-{hashlib.sha256(b'team-a').hexdigest()}"
        assert session.status == "idle"
        pid = await pid_in(Path(session.workspace) / "pid")
        assert alive(pid)
        second = await started(service, place, context)
        assert await second.wait_stopped(GUARD) == "completed"
        assert session.workspace in (await results(service, second))[0]
        assert "ready" in (await results(service, second))[1]
        assert await service.delete_session(session.session_id)
        assert not alive(pid)
        assert await service.sessions() == ()
        assert not Path(session.workspace).exists()


async def test_a_session_is_running_while_a_command_runs(tmp_path: Path) -> None:
    """BOT-6: `running` during the command, `idle` after its cancel."""
    replies = [calls(("execute", {"command": SERVER}))]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        run = await started(service, place, AgentContext(sandbox="team-b", yolo=True))
        [session] = await service.sessions()
        await pid_in(Path(session.workspace) / "pid")
        assert (await service.sessions())[0].status == "running"
        assert await run.cancel("enough") == "cancelled"
        assert (await service.sessions())[0].status == "idle"


async def test_python_keeps_its_variables_through_the_cancel_of_a_cell(tmp_path: Path) -> None:
    """O4S-11 at graph level: the cell's processes die, the kernel of the session and its variables live."""
    slow = "import subprocess, os\nsubprocess.Popen(['sh', '-c', 'echo $$ > pid; sleep 60'])\nimport time; time.sleep(60)"
    replies = [
        calls(("python", {"code": "kept = 41"})),
        calls(("python", {"code": slow})),
        calls(("python", {"code": "print(kept + 1)"})),
        says("Done."),
    ]
    async with scene(tmp_path, replies) as place, opened(place) as service:
        context = AgentContext(sandbox="team-c", yolo=True)
        first = await started(service, place, context)
        [session] = await service.sessions()
        pid = await pid_in(Path(session.workspace) / "pid")
        assert await first.cancel("enough") == "cancelled"
        assert not alive(pid)
        second = await started(service, place, context)
        assert await second.wait_stopped(GUARD) == "completed"
        assert "42" in (await results(service, second))[0]


async def test_python_asks_like_a_command(tmp_path: Path) -> None:
    """S24: a code tool is behind the same gate."""
    async with scene(tmp_path, [calls(("python", {"code": "open('made', 'w')"}))]) as place, opened(place) as service:
        run = await service.submit("Go.", context=place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        assert not (place.workspace / "made").exists()
