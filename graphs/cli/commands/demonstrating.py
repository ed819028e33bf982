"""`checkrein demo`: the main job on this machine, without a key: run, stop before a command, approve elsewhere, cancel.

Everything it uses lies in one temporary folder, which is gone afterwards.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from checkpoints.errors import CheckreinError
from graphs.cli.conversation import converse, decided
from graphs.cli.desk import SCRIPTED, Desk
from graphs.cli.exits import Exit
from graphs.cli.prompt import approve_of, asked_in, show
from graphs.client import open_checkrein
from graphs.run import Run
from graphs.service import Service
from graphs.settings import BASE_URL, MODEL, STATE_HOME, STORE, Settings
from nodes.context import AgentContext
from nodes.models.script import Script
from nodes.models.scripted import ScriptedModel

NOTES = "An agent that runs commands should ask first, and stop when told to.\n"
COUNT = "How many words are in notes.txt?"
LONG = "Start the long job and wait for it."

SILENCE = 1.0
"""Seconds that the long job's files are watched after the cancel; its helper had written twenty times a second."""


class DemoFailedError(CheckreinError):
    """The demo did not show what it should."""

    code = "demo"
    hint = "Run `checkrein doctor`; it says what this machine lacks."


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where the demo plays."""

    desk: Desk
    service: Service
    settings: Settings
    context: AgentContext

    @property
    def workspace(self) -> Path:
        return Path(self.context.workspace)

    def tell(self, text: str) -> None:
        self.desk.face.say("")
        self.desk.face.say(f"== {text}", "good")


async def demo(desk: Desk) -> Exit:
    """Plays the three acts.

    Raises:
        DemoFailedError: Something of what it shows does not hold on this machine.
    """
    async with _stage(desk) as stage:
        stage.tell(f"A task: {COUNT}")
        parked = await stage.service.submit(COUNT, context=stage.context)
        if desk.face.may_ask and not desk.args.no_prompt:
            await converse(desk, stage.service, parked, stage.context)
        else:
            await _approved_elsewhere(stage, parked)
        await _cancelled(stage)
    desk.face.say("")
    desk.face.say("The temporary folder is gone too. Next: `checkrein doctor`, then `checkrein run TASK` with an endpoint.")
    return Exit.COMPLETED


@asynccontextmanager
async def _stage(desk: Desk) -> AsyncIterator[_Stage]:
    with TemporaryDirectory(prefix="checkrein-demo-") as folder:
        workspace, home = Path(folder, "workspace"), Path(folder, "state")
        for path in (workspace, home):
            path.mkdir(mode=0o700)
        (workspace / "notes.txt").write_text(NOTES)
        async with ScriptedModel(_script()) as model:
            settings = Settings(home=home, store=str(home / "demo.db"), model=SCRIPTED, base_url=model.base_url, key_name="")
            async with open_checkrein(settings=settings) as service:
                yield _Stage(desk, service, settings, AgentContext(workspace=str(workspace)))


def _script() -> Script:
    with resources.as_file(resources.files("graphs.cli") / "demo.toml") as path:
        return Script.load(path)


async def _approved_elsewhere(stage: _Stage, parked: Run) -> None:
    """Nobody can be asked here, so a second process approves; what it does is read from the store."""
    await _seen(stage, parked)
    view = await stage.service.show(parked.thread_id)
    show(stage.desk.face, asked_in(view.pending[0].value))
    stage.tell("Nothing has run yet, and nothing waits in memory. No keyboard here, so a second process approves:")
    stage.desk.face.say(f"   checkrein approve {parked.thread_id}", "tool")
    status = await _in_second_process(stage, "approve", parked.thread_id, "--json")
    async for event in stage.service.follow((await stage.service.find_run(parked.thread_id)).run_id):
        stage.desk.face.event(event)
    count = stage.workspace / "count.txt"
    if status != Exit.COMPLETED or not count.exists():
        raise DemoFailedError(f"The approved command did not do its work (exit status {status}).")
    stage.desk.face.say(f"   count.txt, written by the command that was approved: {count.read_text().strip()}", "tool")


async def _seen(stage: _Stage, run: Run) -> None:
    """Shows a run to its end. Ctrl-C ends the whole demo, and the run with it."""
    async with stage.desk.face.live():
        async for event in run.stream():
            stage.desk.face.event(event)


async def _in_second_process(stage: _Stage, *words: str) -> int:
    settings = stage.settings
    named = {STATE_HOME: str(settings.home), STORE: settings.store, MODEL: settings.model, BASE_URL: settings.base_url}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "graphs.cli",
        *words,
        env={**os.environ, **named},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _cancelled(stage: _Stage) -> None:
    stage.tell(f"A task that is cancelled: {LONG}")
    stage.desk.face.say("   (the demo approves its command itself)", "quiet")
    parked = await stage.service.submit(LONG, context=stage.context)
    await _seen(stage, parked)
    approval = (await stage.service.show(parked.thread_id)).pending[0]
    calls = asked_in(approval.value)
    show(stage.desk.face, calls)
    run = await decided(stage.desk, stage.service, approval, [approve_of(call) for call in calls], stage.context)
    outcome = await _cancelled_at_first_output(stage, run)
    ticks = stage.workspace / "ticks.txt"
    before = _size(ticks)
    stage.tell(f"Outcome: {outcome}. The proof that nothing is left:")
    await asyncio.sleep(SILENCE)
    if outcome != "cancelled" or not before or _size(ticks) != before:
        raise DemoFailedError("The cancelled job is not shown to be over.")
    stage.desk.face.say(
        f"   its helper had written {before // 5} lines; {SILENCE:g} s after the cancel it has written none more."
    )
    record = await stage.service.find_run(run.run_id)
    if record.payload is None or record.payload.get("cleanup_errors"):
        raise DemoFailedError("The runtime has no proof that every process of the cancelled job is gone.")
    stage.desk.face.say("   the run's record has no doubt in it: every process that the command had started is proven gone.")


async def _cancelled_at_first_output(stage: _Stage, run: Run) -> str:
    """The long job says something only once its helper has begun, so its first output is the moment to cancel."""
    cancelling: asyncio.Task[str] | None = None
    async for event in run.stream():
        stage.desk.face.event(event)
        if event.kind == "output" and cancelling is None:
            cancelling = asyncio.create_task(run.cancel("the demo cancels it"), name="the demo's cancel")
    return await cancelling if cancelling else await run.wait_stopped()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
