"""Limits: whichever is reached, every call has its answer, the ending says which one it was, and a warning came once before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodes.models.script import ScriptedReply
from tests.accounting.ledgers import all_answered, asked, chain, costing, freely, told, working
from tests.models.streams import chunk, event
from tests.runs.scene import calls, says

pytestmark = pytest.mark.anyio

PRICE = {"input": 1_000.0, "output": 1_000.0}
"""US dollars for a million tokens: a thousand tokens cost one dollar."""

LOOKS = costing(calls(("look", {})), 150, 50).model_copy(update={"times": 0})


@pytest.mark.parametrize(
    ("limits", "requests", "reason", "warning"),
    [
        ({"max_turns": 5}, 5, "max_iterations_reached(5/5)", ("max_iterations", "4", "5")),
        ({"max_tokens": 1000}, 5, "max_tokens_reached(1000/1000)", ("max_tokens", "800", "1000")),
        ({"max_cost": 0.5}, 3, "max_cost_reached(0.6/0.5)", ("max_cost", "0.4", "0.5")),
        ({"max_tool_calls": 5}, 6, "max_tool_calls_reached(6/5)", ("max_tool_calls", "4", "5")),
    ],
)
async def test_a_limit_ends_a_task_in_order(
    tmp_path: Path, limits: dict[str, Any], requests: int, reason: str, warning: tuple[str, str, str]
) -> None:
    """HER-10: the run is over, not broken; the strict server accepts the next task on the thread."""
    async with working(tmp_path, [LOOKS], *chain("first", price=PRICE)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, **limits)), "completed")
        assert len(place.model.requests) == requests
        assert (run.terminal["completed"], run.terminal["turn_exit_reason"]) == (False, reason)
        [said] = run.of_kind("limit_warning")
        assert (said["limit"], f"{float(said['used']):g}", said["of"]) == warning
        thread_id = run.terminal["checkpoint_thread_id"]
        assert all_answered((await service.show(thread_id)).messages)
        again = await told(await service.submit("And?", thread_id=thread_id, context=freely(place, max_turns=1)))
        assert again.terminal["turn_exit_reason"] == "max_iterations_reached(1/1)"
        assert {status for _, status in asked(place)} == {200}


async def test_calls_beyond_the_limit_do_not_run_and_say_so(tmp_path: Path) -> None:
    """Three calls where two are left: none of the three runs, each is answered."""
    three = calls(*[("execute", {"command": "echo ran >> lines"})] * 3)
    async with working(tmp_path, [three]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, max_tool_calls=2)), "completed")
        assert run.terminal["turn_exit_reason"] == "max_tool_calls_reached(3/2)"
        assert "tool.start" not in run.kinds
        assert not (place.workspace / "lines").exists()
        messages = (await service.show(run.terminal["checkpoint_thread_id"])).messages
        assert all_answered(messages)
        assert ["max_tool_calls_reached(3/2)" in message.text for message in messages[2:]] == [True] * 3


async def test_an_answer_at_the_limit_is_an_answer(tmp_path: Path) -> None:
    """The last turn that is allowed may end the task."""
    async with working(tmp_path, [LOOKS.model_copy(update={"times": 1}), says("Done.")]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, max_turns=2)), "completed")
        assert (run.terminal["completed"], run.terminal["turn_exit_reason"]) == (True, "finished")


async def test_the_time_of_a_run_ends_it_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    """One clock decides: the outcome is timeout, the text that was shown is kept, and a warning came before."""
    piece = event(chunk({"content": "some words "}))
    stalls = ScriptedReply(raw=(piece, "unsent"), silent_after=len(piece))
    async with working(tmp_path, [stalls, says("Hello.")]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, timeout=1)), "timeout")
        assert run.of_kind("limit_warning") == [{"limit": "timeout", "used": "0.8", "of": "1"}]
        assert run.terminal["cause"] == "timeout"
        assert run.terminal["usage"]["estimated"] is True
        thread_id = run.terminal["checkpoint_thread_id"]
        [_, partial] = (await service.show(thread_id)).messages
        assert (partial.text, partial.response_metadata["interrupted"]) == ("some words ", "timeout")
        await told(await service.submit("hello", thread_id=thread_id, context=freely(place)), "completed")


async def test_the_time_of_a_run_ends_it_in_the_middle_of_a_command(tmp_path: Path) -> None:
    """The call that was running is answered, and the thread goes on."""
    async with working(tmp_path, [calls(("execute", {"command": "sleep 60"})), says("Hello.")]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, timeout=1.5)), "timeout")
        thread_id = run.terminal["checkpoint_thread_id"]
        assert all_answered((await service.show(thread_id)).messages)
        await told(await service.submit("hello", thread_id=thread_id, context=freely(place)), "completed")
        assert {status for _, status in asked(place)} == {200}


async def test_no_model_is_asked_when_the_limit_is_reached_after_an_approval(tmp_path: Path) -> None:
    """EVO-4: a task that is over asks nobody, also not for a summary."""
    wants = costing(calls(("execute", {"command": "true"})), 900, 100)
    async with working(tmp_path, [wants], *chain("first", window=1000)) as (place, service):
        context = place.context.model_copy(update={"max_turns": 1})
        parked = await told(await service.submit("Go. " * 400, context=context), "awaiting_input")
        child = await service.decide(parked.terminal["checkpoint_thread_id"], [{"type": "approve"}], context=context)
        run = await told(child, "completed")
        assert run.terminal["turn_exit_reason"] == "max_iterations_reached(1/1)"
        assert len(place.model.requests) == 1
