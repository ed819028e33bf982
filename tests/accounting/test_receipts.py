"""A run's receipt: the change over the run, failed and cancelled attempts included, nothing twice, and no history."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path

import pytest

from nodes.models.script import ScriptedReply
from tests.accounting.ledgers import asked, chain, configured, costing, freely, only, saw, told, working
from tests.models.streams import chunk, event, usage
from tests.runs.scene import GUARD, calls, opened, says, scene
from tests.runs.test_recovery import doomed, killed

pytestmark = pytest.mark.anyio

PRICE = {"input": 1.0, "output": 10.0}
BUSY = ScriptedReply(status=503)
WANTS = calls(("look", {"path": "/here"}))


async def test_a_budget_exhausted_run_has_a_normal_receipt(tmp_path: Path) -> None:
    """HER-10: not completed, partial, which limit, what it took, who answered, and no history."""
    replies = [costing(WANTS, 7, 3)]
    async with working(tmp_path, replies, *chain("first", price=PRICE)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, max_turns=1)), "completed")
        receipt = run.terminal
        assert (receipt["completed"], receipt["partial"]) == (False, True)
        assert receipt["turn_exit_reason"] == "max_iterations_reached(1/1)"
        assert Decimal(receipt["estimated_cost_usd"]) == Decimal("0.000037")
        assert (receipt["model"], receipt["provider"]) == ("first", "127.0.0.1")
        assert "messages" not in receipt
        assert json.loads(json.dumps(receipt)) == receipt


async def test_usage_is_the_change_over_the_run(tmp_path: Path) -> None:
    """HER-11: after a run of 100 and 20 the next one on the thread says exactly what it took itself."""
    async with working(tmp_path, [costing(says("A."), 100, 20), costing(says("B."), 7, 3)]) as (place, service):
        first = await told(await service.submit("Go.", context=place.context), "completed")
        thread_id = first.terminal["checkpoint_thread_id"]
        second = await told(await service.submit("More.", thread_id=thread_id, context=place.context), "completed")
        assert first.terminal["usage"] == {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
        assert second.terminal["usage"] == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


async def test_an_approval_is_a_run_with_a_receipt_of_its_own(tmp_path: Path) -> None:
    """HER-11: the parked run and the one that goes on with it share nothing."""
    replies = [costing(calls(("execute", {"command": "true"})), 100, 20), costing(says("Done."), 7, 3)]
    async with working(tmp_path, replies) as (place, service):
        parked = await told(await service.submit("Go.", context=place.context), "awaiting_input")
        child = await service.decide(parked.terminal["checkpoint_thread_id"], [{"type": "approve"}])
        done = await told(child, "completed")
        assert parked.terminal["usage"]["total_tokens"] == 120
        assert done.terminal["usage"] == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


async def test_what_nobody_knows_is_left_out_and_not_zero(tmp_path: Path) -> None:
    """HER-11: no counts from an attempt that was refused, no cost without a price."""
    async with working(tmp_path, [BUSY]) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "failed")
        assert (run.terminal["usage"], run.terminal["estimated_cost_usd"]) == ({}, None)
        assert (run.terminal["attempts"], run.terminal["model"]) == (1, "")


async def test_a_failed_attempt_counts_beside_the_one_that_answered(tmp_path: Path) -> None:
    """HER-11: the first model reported 5 and 1 before it broke off, the fallback 7 and 3."""
    billed = event(usage(5, 1)) + event(chunk({"role": "assistant", "content": ""}))
    broken = ScriptedReply(raw=(billed, "unsent"), disconnect_after=len(billed))
    replies = [only("first", broken), only("second", costing(says("Mine."), 7, 3))]
    async with working(tmp_path, replies, *chain("first", "second", price=PRICE)) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "completed")
        assert run.terminal["usage"] == {"input_tokens": 12, "output_tokens": 4, "total_tokens": 16}
        assert Decimal(run.terminal["estimated_cost_usd"]) == Decimal("0.000052")
        state = await service.state(run.terminal["checkpoint_thread_id"])
        assert (state.values["spent"]["tokens"], state.values["spent"]["context_tokens"]) == (16, 7)


async def test_text_that_was_shown_before_a_cancel_is_kept(tmp_path: Path) -> None:
    """S45: fifty tokens, a cancel, another runtime: the text is there, marked, with no half call in it."""
    words = [f"word{number} " for number in range(50)]
    raw = "".join(event(chunk({"content": word})) for word in words)
    half = event(chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"pa'}}]}))
    stalls = ScriptedReply(raw=(raw, half, "unsent"), silent_after=len(raw) + len(half))
    async with working(tmp_path, [stalls, says("Hello.")]) as (place, service):
        run = await service.submit("Go.", context=place.context)
        shown = ""
        async for item in run.stream():
            shown += item.payload["text"] if item.kind == "token" else ""
            if shown == "".join(words):
                break
        assert await run.cancel("enough") == "cancelled"
        await told(run, "cancelled")
        thread_id = run.thread_id
        assert (await place.model.wait_for(1))[0].client_left
        async with opened(place) as other:
            [_, partial] = (await other.show(thread_id)).messages
            assert (partial.text, partial.response_metadata["interrupted"]) == ("".join(words), "cancel")
            assert (partial.tool_calls, partial.invalid_tool_calls) == ([], [])
            await told(await other.submit("hello", thread_id=thread_id, context=place.context), "completed")


@pytest.mark.parametrize("said", ["running totals", "nothing"])
async def test_an_aborted_stream_is_charged(tmp_path: Path, said: str) -> None:
    """S46: running totals where the provider sent them, else an estimate that says so; in the receipt and in the cost."""
    reported = said == "running totals"
    pieces = [event({**chunk({"content": "some words "}), **({"usage": usage(40, 2)["usage"]} if reported else {})})]
    stalls = ScriptedReply(raw=(*pieces, "unsent"), silent_after=len(pieces[0]))
    async with working(tmp_path, [stalls], *chain("first", price=PRICE)) as (place, service):
        run = await service.submit("Go.", context=place.context)
        await saw(run, "token")
        await run.cancel("enough")
        terminal = (await told(run, "cancelled")).terminal
        if reported:
            assert terminal["usage"] == {"input_tokens": 40, "output_tokens": 2, "total_tokens": 42}
        else:
            assert terminal["usage"]["estimated"] is True
            assert terminal["usage"]["output_tokens"] == 3
            assert terminal["usage"]["input_tokens"] > 100
        assert Decimal(terminal["estimated_cost_usd"]) > 0


async def test_a_recovered_run_counts_nothing_twice_and_forgets_nothing(tmp_path: Path) -> None:
    """HER-11: one call was answered before the runtime died in the second; the third attempt ends the run."""
    first = costing(calls(("read_file", {"path": "note.txt"})), 100, 20)
    hangs = ScriptedReply(hang=True)
    async with scene(tmp_path, [first, hangs, costing(says("Done."), 7, 3)]) as place:
        configured(place, *chain("first"))
        (place.workspace / "note.txt").write_text("hello\n")
        async with doomed(place, "submit") as (process, thread_id):
            async with asyncio.timeout(GUARD):
                await place.model.wait_for(2)
            await killed(process)
        async with opened(place) as service:
            [run] = await service.recover()
            terminal = (await told(run, "completed")).terminal
            assert terminal["usage"] == {"input_tokens": 107, "output_tokens": 23, "total_tokens": 130}
            assert terminal["attempts"] == 3
            state = await service.state(thread_id)
            assert (state.values["spent"]["turns"], state.values["spent"]["tokens"]) == (2, 130)


async def test_terms_that_name_no_model_fail_the_run_and_still_give_a_receipt(tmp_path: Path) -> None:
    """One terminal event, whatever the address is."""
    async with working(tmp_path, []) as (place, service):
        context = place.context.model_copy(update={"base_url": "not an address"})
        run = await told(await service.submit("Go.", context=context), "failed")
        assert run.terminal["error"]["code"] == "model_spec_invalid"
        assert (run.terminal["attempts"], run.terminal["usage"]) == (0, {})
        assert asked(place) == []


async def test_a_model_that_the_configuration_does_not_name_has_nobody_elses_price(tmp_path: Path) -> None:
    """Unknown is not zero, nor what the model beside it costs."""
    async with working(tmp_path, [costing(says("Done."), 7, 3)], *chain("first", price=PRICE)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place, model="unheard-of")), "completed")
        assert asked(place) == [("unheard-of", 200)]
        assert (run.terminal["model"], run.terminal["estimated_cost_usd"]) == ("unheard-of", None)
