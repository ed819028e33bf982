"""The main job through the real command: run, park, decide in another process, look, cancel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodes.models.script import Script
from nodes.models.scripted import ScriptedModel
from tests.cli.command import Checkrein, Done
from tests.cli.conftest import THREE_CALLS

pytestmark = pytest.mark.anyio


async def parked(checkrein: Checkrein, script: str) -> str:
    done = await checkrein("run", "look", "--script", script)
    assert done.status == 3, done.err
    assert not (checkrein.workspace / "ran.txt").exists()
    return str(done.last["payload"]["checkpoint_thread_id"])


def ended(done: Done) -> str:
    """The outcome, which is in the last line and in no other."""
    assert [line["kind"] for line in done.lines].count("run_terminal") == 1
    assert done.last["kind"] == "run_terminal"
    return str(done.last["payload"]["outcome"])


async def test_a_gated_command_waits_off_a_terminal_and_runs_when_another_process_approves(
    checkrein: Checkrein, script: str
) -> None:
    """S25, S27, EVO-12, EVO-16: no approver means a pause in the store, and the store alone has the whole request."""
    first = await checkrein("run", "look", "--script", script)
    assert (first.status, ended(first)) == (3, "awaiting_input")
    waiting = first.last["payload"]["pending_interrupts"]
    assert waiting[0]["id"]
    thread = first.last["payload"]["checkpoint_thread_id"]
    [approval] = (await checkrein("inbox")).of_kind("approval")
    assert (approval["thread_id"], approval["interrupt_id"]) == (thread, waiting[0]["id"])
    assert approval["value"] == waiting[0]["value"]
    assert not (checkrein.workspace / "ran.txt").exists()

    second = await checkrein("approve", thread[:8], "--script", script)
    assert (second.status, ended(second)) == (0, "completed")
    shown, *_ = second.lines
    assert shown["value"] == approval["value"], "what will run is shown before it runs"
    assert str(checkrein.workspace) in shown["value"]["action_requests"][0]["description"]
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\n"

    third = await checkrein("approve", thread, "--script", script)
    assert third.status == 6
    assert third.last["code"] == "nothing_waits"
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\n"


async def test_every_call_of_a_message_is_decided_in_its_own_way(checkrein: Checkrein, tmp_path: Path) -> None:
    """Issue: one approved, one rejected, one edited; a strict server accepts the history. Wrong answers change nothing."""
    decisions = [
        {"type": "approve"},
        {"type": "reject", "message": "not this one"},
        {"type": "edit", "edited_action": {"name": "write_file", "args": {"path": "third.txt", "content": "as edited\n"}}},
    ]
    path = tmp_path / "three.toml"
    path.write_text(THREE_CALLS)
    async with ScriptedModel(Script.load(path), strict=True) as server:
        endpoint = ("--base-url", server.base_url, "--model", "any")
        first = await checkrein("run", "look", *endpoint)
        thread = first.last["payload"]["checkpoint_thread_id"]
        [waiting] = first.last["payload"]["pending_interrupts"]
        assert "+as asked" in waiting["value"]["action_requests"][2]["description"], "a file edit is shown as its diff"
        wrong = [
            ("approve", thread, "--call", "first"),
            ("decide", thread, "--decisions", json.dumps([*decisions[:2], {"type": "dance"}])),
        ]
        for words in wrong:
            refused = await checkrein(*words, *endpoint)
            assert (refused.status, refused.last["code"]) == (2, "answer"), words
        (tmp_path / "decisions.json").write_text(json.dumps({"decisions": decisions}))
        done = await checkrein("decide", thread, "--decisions", f"@{tmp_path}/decisions.json", *endpoint)
        assert (done.status, ended(done)) == (0, "completed")
        assert server.statuses == [200, 200]
        results = [message for message in server.requests[-1].body["messages"] if message["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == ["first", "second", "third"]
    assert "not this one" in results[1]["content"]
    assert (checkrein.workspace / "ran.txt").read_text() == "first\n"
    assert (checkrein.workspace / "third.txt").read_text() == "as edited\n"


async def test_an_edited_command_runs_instead(checkrein: Checkrein, script: str) -> None:
    thread = await parked(checkrein, script)
    refused = await checkrein("edit", thread, "--args", "{'command': 'ls'}", "--script", script)
    assert (refused.status, refused.last["code"]) == (2, "arguments")
    done = await checkrein("edit", thread, "--command", "echo edited > ran.txt", "--script", script)
    assert (done.status, ended(done)) == (0, "completed")
    assert any("echo edited" in line["text"] for line in done.of_kind("note")), "the new command is shown before it runs"
    assert (checkrein.workspace / "ran.txt").read_text() == "edited\n"


async def test_a_rejection_and_a_response_reach_the_model_and_run_nothing(checkrein: Checkrein, script: str) -> None:
    first = await parked(checkrein, script)
    done = await checkrein("reject", first, "--reason", "too dear", "--script", script)
    assert (done.status, ended(done)) == (0, "completed")
    [result] = [line for line in (await checkrein("show", first)).of_kind("message") if line["type"] == "tool"]
    assert "too dear" in result["text"]
    second = await parked(checkrein, script)
    done = await checkrein("respond", second, "--message", "forty-two", "--script", script)
    assert (done.status, ended(done)) == (0, "completed")
    [result] = [line for line in (await checkrein("show", second)).of_kind("message") if line["type"] == "tool"]
    assert result["text"] == "forty-two"
    assert not (checkrein.workspace / "ran.txt").exists()


async def test_a_parked_thread_is_withdrawn_by_cancel_and_goes_on_with_a_new_task(checkrein: Checkrein, script: str) -> None:
    thread = await parked(checkrein, script)
    assert (await checkrein("cancel", thread, "--reason", "changed my mind")).status == 0
    late = await checkrein("approve", thread, "--script", script)
    assert late.status == 6
    assert "withdrawn" in late.last["message"]
    again = await checkrein("run", "again", "--thread", thread, "--script", script)
    assert (again.status, again.last["payload"]["checkpoint_thread_id"]) == (3, thread)


async def test_a_limit_has_an_exit_status_of_its_own(checkrein: Checkrein, script: str) -> None:
    done = await checkrein("run", "look", "--script", script, "--review-mode", "auto", "--max-turns", "1")
    assert done.status in (3, 7)
    if done.status == 3:
        thread = done.last["payload"]["checkpoint_thread_id"]
        done = await checkrein("approve", thread, "--script", script, "--max-turns", "1")
    assert (done.status, ended(done)) == (7, "completed")
