"""Long conversations: shortened in time, in whole batches, once, and for good; never without need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodes.models.context import SUMMARY_MARK
from nodes.models.script import ScriptedReply
from nodes.tools.tool import CallSite, Effect, Tool, ToolResult
from tests.accounting.ledgers import Look, all_answered, asked, chain, costing, freely, told, working
from tests.runs.scene import Scene, calls, opened, says

pytestmark = pytest.mark.anyio

WINDOW = 4_000
SUMMARY = "The person wants the files read; three are done."


async def reads(arguments: Look, _: CallSite) -> ToolResult:
    return ToolResult(content=f"{arguments.path}: " + "word " * 700)


READ = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.NONE, run=reads)


def step(number: int, *, parallel: int = 1) -> ScriptedReply:
    return calls(*[("look", {"path": f"file-{number}-{index}"}) for index in range(parallel)])


def summaries(place: Scene) -> list[int]:
    """Numbers of the requests that asked for a summary: they offer no tools."""
    return [request.number for request in place.model.requests if "tools" not in request.body]


async def test_a_conversation_that_nears_the_window_is_shortened_and_goes_on(tmp_path: Path) -> None:
    """The strict server accepts every request, the summary stands where the beginning was, and batches stay whole."""
    replies = [step(1, parallel=2), step(2), step(3), says(SUMMARY), step(4), says("Done.")]
    async with working(tmp_path, replies, *chain("first", window=WINDOW), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        assert run.terminal["final_text"] == "Done."
        assert {status for _, status in asked(place)} == {200}
        assert summaries(place) == [4]
        assert len(run.of_kind("compacted")) == 1
        assert SUMMARY not in run.shown
        after = json.dumps(place.model.requests[4].body["messages"])
        assert SUMMARY in after
        assert "file-1-0: word" not in after
        assert "file-3-0: word" in after
        messages = (await service.show(run.terminal["checkpoint_thread_id"])).messages
        assert all_answered(messages)
        assert [bool(message.additional_kwargs.get(SUMMARY_MARK)) for message in messages].count(True) == 1
        assert run.terminal["attempts"] == len(place.model.requests)


async def test_the_shorter_conversation_is_what_is_stored(tmp_path: Path) -> None:
    """Another runtime over the same store goes on from the summary and asks for none again."""
    replies = [step(1), step(2), step(3), step(4), says(SUMMARY), says("Done."), says("More.")]
    async with working(tmp_path, replies, *chain("first", window=WINDOW), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        thread_id = run.terminal["checkpoint_thread_id"]
        before = [message.model_dump() for message in (await service.show(thread_id)).messages]
        async with opened(place) as other:
            assert [message.model_dump() for message in (await other.show(thread_id)).messages] == before
            again = await told(await other.submit("And?", thread_id=thread_id, context=freely(place)), "completed")
            assert again.terminal["final_text"] == "More."
            assert "compacted" not in again.kinds
            assert SUMMARY in json.dumps(place.model.requests[-1].body["messages"])
        assert {status for _, status in asked(place)} == {200}


async def test_nothing_is_asked_for_a_conversation_that_fits(tmp_path: Path) -> None:
    """EVO-4: no summary call, no request besides the turns."""
    async with working(tmp_path, [step(1), says("Done.")], *chain("first", window=WINDOW), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        assert len(place.model.requests) == 2
        assert "compacted" not in run.kinds


async def test_what_the_model_reports_counts_more_than_the_estimate(tmp_path: Path) -> None:
    """A tokenizer that makes more of the text than four characters a token is believed."""
    replies = [costing(step(1), 1_000, 10), costing(step(2), 3_500, 10), says(SUMMARY), says("Done.")]
    async with working(tmp_path, replies, *chain("first", window=WINDOW), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        assert summaries(place) == [3]
        assert run.terminal["completed"] is True


async def test_a_summary_is_charged_to_its_task_and_its_receipt(tmp_path: Path) -> None:
    """HER-11: its tokens and its cost are the run's, and count against the task's limits."""
    replies = [
        costing(step(1), 1_000, 10),
        costing(step(2), 3_500, 10),
        costing(says(SUMMARY), 500, 20),
        costing(says("Done."), 7, 3),
    ]
    price = {"input": 1.0, "output": 0.0}
    async with working(tmp_path, replies, *chain("first", window=WINDOW, price=price), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        assert run.terminal["usage"]["total_tokens"] == 1_010 + 3_510 + 520 + 10
        spent = (await service.state(run.terminal["checkpoint_thread_id"])).values["spent"]
        assert spent["tokens"] == run.terminal["usage"]["total_tokens"]
        assert float(spent["cost"]) == float(run.terminal["estimated_cost_usd"]) == 5_007 / 1_000_000


async def test_a_task_that_begins_with_a_summary_begins_at_zero(tmp_path: Path) -> None:
    """What the task before it spent does not count; the summary does."""
    replies = [
        costing(step(1), 100, 10),
        costing(says("Done."), 3_500, 10),
        costing(says(SUMMARY), 500, 20),
        costing(says("More."), 7, 3),
    ]
    async with working(tmp_path, replies, *chain("first", window=WINDOW), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        thread_id = run.terminal["checkpoint_thread_id"]
        again = await told(await service.submit("And?", thread_id=thread_id, context=freely(place)), "completed")
        assert len(again.of_kind("compacted")) == 1
        spent = (await service.state(thread_id)).values["spent"]
        assert (spent["turns"], spent["tokens"]) == (1, 530)
        assert again.terminal["usage"]["total_tokens"] == 530


@pytest.mark.parametrize("fault", [ScriptedReply(status=503), ScriptedReply(text="half of it", disconnect_after=260)])
async def test_a_summary_that_nobody_gives_is_no_reason_to_fail(tmp_path: Path, fault: ScriptedReply) -> None:
    """The conversation still fits; it is asked again before the next turn."""
    replies = [costing(step(1), 1_000, 10), costing(step(2), 3_500, 10), fault, costing(says("Done."), 7, 3)]
    async with working(tmp_path, replies, *chain("first", window=WINDOW), tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        assert len(run.of_kind("compaction_failed")) == 1
        assert run.shown == "Done."
        messages = (await service.show(run.terminal["checkpoint_thread_id"])).messages
        assert all_answered(messages)
        assert len(messages) == 6


async def test_the_window_is_that_of_the_model_in_use(tmp_path: Path) -> None:
    """A fallback that the task is pinned to has a smaller window than the first choice."""
    big, small = {**chain("first")[0], "window": 1_000_000}, {**chain("second")[0], "window": WINDOW}
    replies = [ScriptedReply(status=503), step(1), step(2), step(3), step(4), says(SUMMARY), says("Done.")]
    async with working(tmp_path, replies, big, small, tools=[READ]) as (place, service):
        run = await told(await service.submit("Read the files.", context=freely(place)), "completed")
        assert len(run.of_kind("compacted")) == 1
        assert asked(place) == [("first", 503), *[("second", 200)] * 6]
