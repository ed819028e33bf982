"""Retries and fallbacks as whole runs see them: over HTTP, through the graph, with the models of a configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes.models.script import ScriptedCall, ScriptedReply
from tests.accounting.ledgers import SEVEN_THREE, all_answered, asked, chain, freely, only, told, working
from tests.models.streams import call, chunk, event, text
from tests.runs.scene import calls, says

pytestmark = pytest.mark.anyio

BUSY = ScriptedReply(status=503, headers={"Retry-After": "0"}, body={"error": {"message": "busy"}})
LIMITED = ScriptedReply(status=429, body={"error": {"message": "slow down"}})
CUT = ScriptedReply(text="half of it", disconnect_after=260)


async def test_a_retried_call_repeats_no_effect(tmp_path: Path) -> None:
    """BOT-10: requests are exactly [503, 200, 200, 200], all to one model; two commands ran once each; completed."""
    one = calls(("execute", {"command": "echo one >> lines"}))
    two = calls(("execute", {"command": "echo two >> lines"}))
    async with working(tmp_path, [BUSY, one, two, says("Done.")], *chain("first", "second", retries=1)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "completed")
        assert place.model.statuses == [503, 200, 200, 200]
        assert {request.model for request in place.model.requests} == {"first"}
        assert (place.workspace / "lines").read_text().split() == ["one", "two"]
        assert run.terminal["final_text"] == "Done."
        assert [attempt["http_status"] for attempt in run.of_kind("model_attempt")] == [503, 200, 200, 200]


async def test_retries_are_off_unless_configured(tmp_path: Path) -> None:
    """BOT-10: one request, and the run fails with what the service said."""
    async with working(tmp_path, [BUSY, says("never")]) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "failed")
        assert place.model.statuses == [503]
        assert run.terminal["error"]["code"] == "model_unavailable"
        assert "busy" in run.terminal["error"]["message"]


async def test_a_broken_stream_is_final_and_the_same_agent_answers_next_time(tmp_path: Path) -> None:
    """BOT-11, BOT-13: one request, the partial text was seen and is kept, no fallback, failed; then a new run completes."""
    async with working(tmp_path, [CUT, says("Better.")], *chain("first", "second", retries=3)) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "failed")
        assert asked(place) == [("first", 200)]
        assert run.shown == "half "
        assert run.terminal["error"]["code"] == "model_disconnected"
        thread_id = run.terminal["checkpoint_thread_id"]
        [_, partial] = (await service.show(thread_id)).messages
        assert (partial.text, partial.response_metadata["interrupted"]) == ("half ", "failure")
        again = await told(await service.submit("Once more.", thread_id=thread_id, context=place.context), "completed")
        assert again.terminal["final_text"] == "Better."
        assert asked(place) == [("first", 200), ("first", 200)]


async def test_an_exhausted_fallback_fails_and_the_same_agent_answers_next_time(tmp_path: Path) -> None:
    """BOT-12, BOT-13: requests are exactly [(first, 503), (second, 429)]; failed; then a new run completes."""
    async with working(tmp_path, [BUSY, LIMITED, says("Better.")], *chain("first", "second")) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "failed")
        assert asked(place) == [("first", 503), ("second", 429)]
        assert run.terminal["error"]["code"] == "model_rate_limited"
        thread_id = run.terminal["checkpoint_thread_id"]
        assert [message.type for message in (await service.show(thread_id)).messages] == ["human"]
        again = await told(await service.submit("Once more.", thread_id=thread_id, context=place.context), "completed")
        assert again.terminal["final_text"] == "Better."


DELETE = ScriptedCall(name="execute", arguments={"command": "echo ran >> lines"})
WHOLE_CALL = event(chunk(call('{"command": "echo ran >> lines"}', call_id="a", name="execute")))
HALF_A_TEXT = "".join(event(chunk(delta)) for delta in text("half ", "of it"))
CLOSINGS = {
    "after the headers": ScriptedReply(raw=("",), framing="close"),
    "after half a text": ScriptedReply(raw=(HALF_A_TEXT,), framing="close"),
    "after whole arguments": ScriptedReply(raw=(WHOLE_CALL,), framing="close"),
}


@pytest.mark.parametrize("name", CLOSINGS)
async def test_a_stream_that_ends_without_a_finish_reason_is_no_answer(tmp_path: Path, name: str) -> None:
    """S38 a, b, c: a transport error that is retried or not, and never runs a tool."""
    committed = name == "after half a text"
    replies = [CLOSINGS[name], says("Whole.")]
    async with working(tmp_path, replies, *chain("first", retries=1)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "failed" if committed else "completed")
        assert len(place.model.requests) == (1 if committed else 2)
        assert not (place.workspace / "lines").exists()
        assert run.of_kind("model_attempt")[0]["cause"] in ("model_truncated", "model_disconnected")
        assert "tool.start" not in run.kinds


async def test_a_finish_reason_without_the_last_mark_is_an_answer(tmp_path: Path) -> None:
    """S38 d: no `[DONE]`, but whole."""
    whole = ScriptedReply(text="Whole.", done=False, framing="close")
    async with working(tmp_path, [whole]) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "completed")
        assert run.terminal["final_text"] == "Whole."


async def test_a_stall_before_the_first_text_goes_to_the_fallback(tmp_path: Path) -> None:
    """S43: one start, one end, one text; the events say who answered and why."""
    role = event(chunk({"role": "assistant", "content": ""}))
    stalls = ScriptedReply(raw=(role, "unsent"), silent_after=len(role))
    quick = {"between_chunks": 0.2}
    replies = [only("first", stalls), only("second", says("Mine.").model_copy(update={"usage": SEVEN_THREE}))]
    async with working(tmp_path, replies, *chain("first", "second", timeouts=quick)) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "completed")
        assert run.kinds.count("run_started") == 1
        assert run.shown == run.terminal["final_text"] == "Mine."
        tries = [(attempt["model"], attempt["status"], attempt["cause"]) for attempt in run.of_kind("model_attempt")]
        assert tries == [("first", "failed", "model_timeout"), ("second", "completed", "")]
        assert run.of_kind("stream_reset") == [{"attempt": 1, "model": "first", "cause": "model_timeout"}]
        assert (run.terminal["model"], run.terminal["attempts"]) == ("second", 2)
        [_, message] = (await service.show(run.terminal["checkpoint_thread_id"])).messages
        assert message.text == "Mine."


async def test_a_task_stays_with_the_model_that_answered_it_first(tmp_path: Path) -> None:
    """After the first visible chunk the model is pinned: the fallback goes on alone, and its failure is the run's."""
    wants = says("I will look.").model_copy(update={"calls": (ScriptedCall(name="look", arguments={}),)})
    replies = [only("first", BUSY), only("second", wants), only("second", BUSY), only("first", says("never"))]
    async with working(tmp_path, replies, *chain("first", "second")) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "failed")
        assert asked(place) == [("first", 503), ("second", 200), ("second", 503)]
        state = await service.state(run.terminal["checkpoint_thread_id"])
        assert state.values["pinned"] == "second"
        assert all_answered(state.values["messages"])


async def test_a_new_task_begins_with_the_first_choice_again(tmp_path: Path) -> None:
    """A pin belongs to the task, not to the thread."""
    replies = [only("first", BUSY), only("second", says("Second.")), only("first", says("First."))]
    async with working(tmp_path, replies, *chain("first", "second")) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "completed")
        thread_id = run.terminal["checkpoint_thread_id"]
        await told(await service.submit("More.", thread_id=thread_id, context=place.context), "completed")
        assert asked(place) == [("first", 503), ("second", 200), ("first", 200)]


async def test_a_wait_that_the_run_has_no_time_for_is_not_begun(tmp_path: Path) -> None:
    """S42: Retry-After beyond the run's deadline ends the run at once, with the service's own words."""
    later = ScriptedReply(status=429, headers={"Retry-After": "59"}, body={"error": {"message": "slow down"}})
    async with working(tmp_path, [later, says("never")], *chain("first", retries=1)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, timeout=40)), "failed")
        assert place.model.statuses == [429]
        assert "model_waiting" not in run.kinds
        assert "slow down" in run.terminal["error"]["message"]


async def test_a_wait_before_a_retry_can_be_cancelled(tmp_path: Path) -> None:
    """S42: the cancel does not wait for the wait."""
    later = ScriptedReply(status=503, headers={"Retry-After": "50"})
    async with working(tmp_path, [later, says("never")], *chain("first", retries=1)) as (place, service):
        run = await service.submit("Go.", context=place.context)
        async for item in run.stream():
            if item.kind == "model_waiting":
                break
        assert await run.cancel("enough") == "cancelled"
        await told(run, "cancelled")
        assert place.model.statuses == [503]
