"""The terms that options choose, the inbox, several threads at once, and what `show` tells of a run."""

from __future__ import annotations

import getpass

import pytest

from tests.cli.command import Checkrein
from tests.cli.test_main_job import ended, parked

pytestmark = pytest.mark.anyio


async def test_everything_that_waits_is_in_one_inbox_and_decided_together(checkrein: Checkrein, script: str) -> None:
    """Issue: thread, age, what was asked and by whom; decide one or several."""
    threads = [await parked(checkrein, script) for _ in range(3)]
    waiting = (await checkrein("inbox")).of_kind("approval")
    assert [entry["thread_id"] for entry in waiting] == threads
    assert {entry["asked_by"] for entry in waiting} == {getpass.getuser()}
    assert all(entry["age_seconds"] >= 0 and entry["title"] == "look" and entry["depth"] == 0 for entry in waiting)
    wrong = await checkrein("approve", threads[0], "no-such-thread", "--script", script)
    assert (wrong.status, wrong.last["code"]) == (2, "unknown_thread")
    assert len((await checkrein("inbox")).lines) == 3, "a wrong name changes nothing"
    both = await checkrein("approve", threads[0], threads[2], "--script", script)
    assert both.status == 0, both.err
    assert [line["payload"]["checkpoint_thread_id"] for line in both.of_kind("run_terminal")] == [threads[0], threads[2]]
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\nran\n"
    assert [entry["thread_id"] for entry in (await checkrein("inbox")).lines] == [threads[1]]
    named = await checkrein("approve", threads[1], threads[0], "--call", "call_1")
    assert (named.status, named.last["code"]) == (2, "option")


async def test_an_unattended_run_never_asks(checkrein: Checkrein, script: str) -> None:
    """`--finite` denies, with `--unattended` it runs, and `--unattended` alone is refused."""
    alone = await checkrein("run", "look", "--script", script, "--unattended")
    assert (alone.status, alone.last["code"]) == (2, "option")
    assert "finite" in alone.last["message"]
    finite = await checkrein("run", "look", "--script", script, "--finite")
    assert (finite.status, ended(finite)) == (0, "completed")
    assert not (checkrein.workspace / "ran.txt").exists()
    both = await checkrein("run", "look", "--script", script, "--finite", "--unattended")
    assert (both.status, ended(both)) == (0, "completed")
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\n"


async def test_an_approval_expires_and_never_approves(checkrein: Checkrein, script: str) -> None:
    done = await checkrein("run", "look", "--script", script, "--approval-timeout", "0.001")
    assert done.status == 3
    thread = done.last["payload"]["checkpoint_thread_id"]
    late = await checkrein("approve", thread, "--script", script)
    assert late.status == 6
    assert "expired" in late.last["message"]
    assert not (checkrein.workspace / "ran.txt").exists()


async def test_show_tells_what_a_run_took_why_it_ended_and_what_came_after(checkrein: Checkrein, script: str) -> None:
    thread = await parked(checkrein, script)
    assert (await checkrein("cancel", thread, "--reason", "changed my mind")).status == 0
    shown = await checkrein("show", thread)
    [run] = shown.of_kind("run")
    assert (run["status"], run["attempts"], run["model"]) == ("awaiting_input", 1, "scripted")
    assert run["usage"]["total_tokens"] > 0
    assert (run["cost_usd"], run["cleanup_errors"]) == (None, [])
    assert run["subject"] == getpass.getuser()
    notes = shown.of_kind("run_note")
    assert any("changed my mind" in str(note["body"]) for note in notes), notes


async def test_an_interrupted_thread_goes_on_without_new_input(checkrein: Checkrein, script: str) -> None:
    thread = await parked(checkrein, script)
    again = await checkrein("resume", thread[:8], "--script", script)
    assert (again.status, ended(again)) == (3, "awaiting_input")
    assert (await checkrein("approve", thread, "--script", script)).status == 0
    over = await checkrein("resume", thread, "--script", script)
    assert (over.status, ended(over)) == (0, "completed")
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\n"
