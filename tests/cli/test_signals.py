"""Ctrl-C, SIGTERM and a reader that leaves: the run is cancelled once, and nothing of it lives on."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.command import Checkrein, Running

pytestmark = pytest.mark.anyio

LONG = """
[[replies]]
when = { tool_results = 0 }
times = 0
text = "I wait."
calls = [{ id = "call_1", name = "execute", arguments = { command = "(setsid sleep 611 &); echo $$; sleep 612" } }]
"""
SLOW = """
[[replies]]
times = 0
hang = true
"""


@pytest.fixture
def long_job(tmp_path: Path) -> str:
    path = tmp_path / "long.toml"
    path.write_text(LONG)
    return str(path)


async def running_command(checkrein: Checkrein, script: str) -> Running:
    """A command of a run that is approved and has said something."""
    thread = (await checkrein("run", "wait", "--script", script)).last["payload"]["checkpoint_thread_id"]
    running = checkrein.start("approve", thread, "--script", script)
    await running.line("output")
    return running


def sleepers() -> list[int]:
    """Processes of the job above, its detached helper included."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] in ([b"sleep", b"611"], [b"sleep", b"612"]):
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
)
async def test_a_signal_cancels_the_run_and_kills_its_tree(
    checkrein: Checkrein, long_job: str, number: signal.Signals, word: str
) -> None:
    """EVO-17, EVO-18: the command, its shell and its detached helper are gone when the command line returns."""
    running = await running_command(checkrein, long_job)
    assert len(sleepers()) == 2
    running.send(number)
    done = await running.end()
    assert sleepers() == []
    assert done.status == 4
    assert done.last["kind"] == "run_terminal"
    assert done.last["payload"]["outcome"] == "cancelled"
    assert word in done.last["payload"]["reason"]
    assert "Cancelling" in done.of_kind("note")[-1]["text"]


async def test_a_second_ctrl_c_says_what_is_waited_for_and_changes_nothing(checkrein: Checkrein, long_job: str) -> None:
    """While another process holds the store, the cause cannot be recorded, so the run is still there to be asked about."""
    running = await running_command(checkrein, long_job)
    with closing(sqlite3.connect(checkrein.store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for said in ("Cancelling", "Still waiting for", "Still waiting for"):
            running.send(signal.SIGINT)
            note = (await running.line("note"))["text"]
            assert said in note
        assert "execute" in note
        assert "sleep 612" in note, "the command that still runs is named"
        other.execute("COMMIT")
    done = await running.end()
    assert done.status == 4
    assert [line["kind"] for line in done.lines].count("run_terminal") == 1
    assert sleepers() == []


async def test_ctrl_c_while_the_model_thinks_cancels_too(checkrein: Checkrein, tmp_path: Path) -> None:
    path = tmp_path / "slow.toml"
    path.write_text(SLOW)
    running = checkrein.start("run", "think", "--script", str(path))
    await running.line("model_started")
    running.send(signal.SIGINT)
    assert (await running.end()).status == 4


async def test_a_run_is_cancelled_from_another_process(checkrein: Checkrein, long_job: str) -> None:
    """The command comes back when nothing is left; both see the same outcome."""
    running = await running_command(checkrein, long_job)
    run_id = (await checkrein("list")).last["live_run_id"]
    done = await checkrein("cancel", run_id, "--reason", "enough")
    assert done.status == 0
    assert done.last["outcome"] == "cancelled"
    assert sleepers() == []
    watched = await running.end()
    assert watched.status == 4
    assert watched.last["payload"]["reason"] == "enough"


async def test_a_busy_thread_is_a_conflict(checkrein: Checkrein, long_job: str) -> None:
    running = await running_command(checkrein, long_job)
    thread = (await checkrein("list")).last["thread_id"]
    second = await checkrein("run", "more", "--thread", thread, "--script", long_job)
    assert (second.status, second.last["code"]) == (6, "thread_busy")
    running.send(signal.SIGTERM)
    assert (await running.end()).status == 4


async def test_ctrl_c_ends_following_and_not_the_run(checkrein: Checkrein, long_job: str) -> None:
    running = await running_command(checkrein, long_job)
    run_id = (await checkrein("list")).last["live_run_id"]
    follower = checkrein.start("follow", run_id)
    await follower.line("output")
    follower.send(signal.SIGINT)
    followed = await follower.end()
    assert (followed.status, followed.last["code"]) == (130, "interrupted")
    assert (await checkrein("list")).last["live_run_id"] == run_id
    running.send(signal.SIGINT)
    assert (await running.end()).status == 4


async def test_the_time_of_a_run_has_a_status_of_its_own(checkrein: Checkrein, long_job: str) -> None:
    thread = (await checkrein("run", "wait", "--script", long_job)).last["payload"]["checkpoint_thread_id"]
    done = await checkrein("approve", thread, "--script", long_job, "--timeout", "0.5")
    assert (done.status, done.last["payload"]["outcome"]) == (5, "timeout")
    assert sleepers() == []


async def test_a_run_that_nobody_reads_is_cancelled(checkrein: Checkrein, long_job: str) -> None:
    """`checkrein approve ... | head -5`: it must not go on unseen."""
    thread = (await checkrein("run", "wait", "--script", long_job)).last["payload"]["checkpoint_thread_id"]
    running = checkrein.start("approve", thread, "--script", long_job)
    await running.line("run_started")
    running.stop_reading()
    assert (await running.end()).status == 4
    assert sleepers() == []


async def test_a_listing_that_nobody_reads_is_no_error(checkrein: Checkrein, script: str) -> None:
    for _ in range(2):
        await checkrein("run", "hi", "--script", script)
    running = checkrein.start("list")
    running.stop_reading()
    done = await running.end()
    assert (done.status, done.err) == (0, "")


async def test_a_model_script_is_served_until_a_signal(checkrein: Checkrein, script: str, tmp_path: Path) -> None:
    server = checkrein.start("model", script, "--strict", "--requests", str(tmp_path / "requests.jsonl"))
    address = (await server.line("serving"))["base_url"]
    done = await checkrein("run", "hi", "--base-url", address, "--model", "any")
    assert done.status == 3
    port = address.rpartition(":")[2].partition("/")[0]
    second = await checkrein("model", script, "--port", port)
    assert (second.status, second.last["code"]) == (2, "option")
    server.send(signal.SIGTERM)
    assert (await server.end()).status == 0
    [request] = (tmp_path / "requests.jsonl").read_text().splitlines()
    assert json.loads(request)["body"]["model"] == "any"
