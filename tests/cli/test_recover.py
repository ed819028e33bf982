"""A command is killed while its run works; another one takes the run up, or settles it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nodes.models.script import Script, ScriptedCall, ScriptedReply, When
from nodes.models.scripted import ScriptedModel
from tests.cli.command import Checkrein
from tests.cli.test_main_job import ended

pytestmark = pytest.mark.anyio

LONG = ScriptedCall(name="execute", id="call_1", arguments={"command": "echo begun >> ran.txt; echo $$; sleep 615"})
TALK = Script.of(
    ScriptedReply(calls=(LONG,), when=When(tool_results=0), times=0),
    ScriptedReply(text="Done.", when=When(tool_results=1), times=0),
)


async def killed(checkrein: Checkrein, server: ScriptedModel) -> str:
    """The thread of a run whose command was killed while its shell command worked."""
    running = checkrein.start("run", "wait", "--yolo", "--model", "any", "--base-url", server.base_url)
    thread = str((await running.line("run_started"))["payload"]["thread_id"])
    await running.line("output")
    running.send(signal.SIGKILL)
    assert (await running.end()).status == -signal.SIGKILL
    return thread


async def test_a_run_whose_process_died_is_taken_up_and_shown(checkrein: Checkrein) -> None:
    """S17, S47: the command that was cut off is not run again; a person says what becomes of it."""
    async with ScriptedModel(TALK) as server:
        thread = await killed(checkrein, server)
        taken = await checkrein("recover")
        assert taken.status == 3, taken.err
        assert [line["thread_id"] for line in taken.of_kind("recovered")] == [thread]
        assert taken.of_kind("run_recovered")
        assert ended(taken) == "awaiting_input"
        assert (await checkrein("recover")).lines == [], "there is nothing left to take up"
        done = await checkrein("respond", thread, "--message", "I looked: it had begun.")
        assert (done.status, ended(done)) == (0, "completed")
    assert (checkrein.workspace / "ran.txt").read_text() == "begun\n"


async def test_a_run_whose_process_died_can_be_settled_and_its_thread_used_again(checkrein: Checkrein) -> None:
    async with ScriptedModel(TALK) as server:
        thread = await killed(checkrein, server)
        settled = await checkrein("recover", "--settle")
        assert settled.status == 0, settled.err
        [row] = settled.of_kind("settled")
        assert (row["thread_id"], row["outcome"]) == (thread, "failed")
        [run] = (await checkrein("show", thread)).of_kind("run")
        assert run["cause"].startswith("lost:")
        assert not sleeping()
        again = await checkrein("run", "hello", "--thread", thread, "--model", "any", "--base-url", server.base_url)
        assert again.status in (0, 3), again.err


def sleeping() -> bool:
    """Whether the command of a dead run still sleeps."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"sleep\x00615\x00"):
                return True
        except OSError:
            continue
    return False
