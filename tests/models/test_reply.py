"""Retry and fallback: only before the first visible chunk, each attempt an event, nothing left of a failed one."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from nodes.models.errors import (
    BadRequestError,
    DisconnectedError,
    ModelError,
    OverloadedError,
    RateLimitedError,
    UnauthorizedError,
)
from nodes.models.script import ScriptedCall, ScriptedReply, ScriptedUsage, When
from nodes.models.spec import ModelChain, ModelSpec, Timeouts, UnknownPinnedModelError
from nodes.models.waits import LONGEST, SHORTEST, seconds_to_wait
from tests.models.streams import call, chunk, event
from tests.models.talk import raw, talking

pytestmark = pytest.mark.anyio

BUSY = ScriptedReply(status=503, headers={"Retry-After": "0"}, body={"error": {"message": "busy"}})
LIMITED = ScriptedReply(status=429, body={"error": {"message": "slow down"}})
RUN = ScriptedReply(calls=(ScriptedCall(name="execute", arguments={"command": "ls"}),))
GOOD = ScriptedReply(text="Good.")


async def test_a_retry_asks_the_same_model_and_nothing_else_changes() -> None:
    """BOT-10 at this level: requests are exactly [503, 200, 200, 200], all to the same model."""
    async with talking(BUSY, RUN, RUN, GOOD, names=("first", "second"), retries=1) as talk:
        replies = [await talk.say() for _ in range(3)]
    assert talk.server.statuses == [503, 200, 200, 200]
    assert {request.model for request in talk.server.requests} == {"first"}
    assert [len(reply.message.tool_calls) for reply in replies] == [1, 1, 0]
    assert talk.server.requests[0].body == talk.server.requests[1].body


async def test_retries_are_off_by_default() -> None:
    """BOT-10"""
    async with talking(BUSY, GOOD) as talk:
        with pytest.raises(OverloadedError):
            await talk.say()
    assert talk.server.statuses == [503]


async def test_after_visible_text_a_disconnect_is_final() -> None:
    """BOT-11: one request, the partial text was seen, no retry and no fallback, and the reply fails."""
    cut = ScriptedReply(text="half of it", disconnect_after=260)
    async with talking(cut, GOOD, GOOD, names=("first", "second"), retries=3) as talk:
        with pytest.raises(DisconnectedError):
            await talk.say()
        assert talk.shown == "half "
        assert [request.model for request in talk.server.requests] == ["first"]
        (attempt,) = talk.of_kind("model_attempt")
        assert (attempt["status"], attempt["committed"], attempt["cause"]) == ("failed", True, "model_disconnected")
        assert talk.of_kind("stream_reset") == []


async def test_an_exhausted_fallback_ends_with_the_last_error() -> None:
    """BOT-12: requests are exactly [(first, 503), (second, 429)]."""
    async with talking(BUSY, LIMITED, names=("first", "second")) as talk:
        with pytest.raises(RateLimitedError) as caught:
            await talk.say()
    assert [(request.model, request.status) for request in talk.server.requests] == [("first", 503), ("second", 429)]
    assert caught.value.status == 429
    assert "slow down" in caught.value.body
    assert [attempt.http_status for attempt in talk.draft.attempts] == [503, 429]


@pytest.mark.parametrize("faults", [(ScriptedReply(text="half of it", disconnect_after=260),), (BUSY, LIMITED)])
async def test_the_same_models_answer_a_later_run(faults: tuple[ScriptedReply, ...]) -> None:
    """BOT-13"""
    async with talking(*faults, GOOD, names=("first", "second")) as talk:
        with pytest.raises(ModelError):
            await talk.say()
        assert (await talk.say()).message.content == "Good."


async def test_a_fallback_leaves_one_start_one_end_and_says_why() -> None:
    """S43: headers and a role arrive, then nothing; the consumer gets a reset and one answer."""
    role = event(chunk({"role": "assistant", "content": ""}))
    stalled = raw(role + ": never sent\n\n", silent_after=len(role))
    quick = Timeouts(first_byte=5.0, between_chunks=0.15)
    async with talking(stalled, GOOD, names=("first", "second"), timeouts=quick) as talk:
        reply = await talk.say()
    kinds = [kind for kind, _ in talk.events]
    assert kinds == ["model_started", "model_attempt", "stream_reset", "model_started", "token", "model_attempt"]
    assert talk.shown == reply.message.content == "Good."
    assert reply.model == "second"
    assert talk.of_kind("stream_reset") == [{"attempt": 1, "model": "first", "cause": "model_timeout"}]


async def test_a_failed_attempt_leaves_no_call_and_no_id_behind() -> None:
    half = event(chunk(call('{"command": "rm', call_id="gone", name="execute")))
    async with talking(raw(half, framing="close"), RUN, retries=1) as talk:
        reply = await talk.say()
    assert len(reply.message.tool_calls) == 1
    assert "gone" not in str(reply.message)
    assert "gone" not in str(talk.events)


async def test_a_pinned_run_asks_only_its_model() -> None:
    async with talking(GOOD, BUSY, GOOD, names=("first", "second")) as talk:
        first = await talk.say()
        with pytest.raises(OverloadedError):
            await talk.say(pinned=first.model)
    assert [request.model for request in talk.server.requests] == ["first", "first"]


async def test_a_run_can_be_pinned_to_the_fallback() -> None:
    async with talking(GOOD, names=("first", "second")) as talk:
        assert (await talk.say(pinned="second")).model == "second"


async def test_a_pin_that_the_chain_does_not_name_is_refused_before_anything_is_sent() -> None:
    async with talking(GOOD) as talk:
        with pytest.raises(UnknownPinnedModelError):
            await talk.say(pinned="third")
    assert talk.server.requests == []


async def test_a_wrong_key_is_not_retried_but_another_model_is_asked() -> None:
    unauthorized = ScriptedReply(status=401, body="no")
    async with talking(unauthorized, GOOD, names=("first", "second"), retries=5) as talk:
        reply = await talk.say()
    assert reply.model == "second"
    assert reply.attempts[0].cause == UnauthorizedError.code
    assert len(talk.server.requests) == 2


async def test_a_request_that_is_wrong_goes_to_no_other_model() -> None:
    async with talking(ScriptedReply(status=400, body="bad"), GOOD, names=("first", "second"), retries=5) as talk:
        with pytest.raises(BadRequestError):
            await talk.say()
    assert len(talk.server.requests) == 1


async def test_a_conversation_too_long_for_one_model_may_fit_the_next() -> None:
    overflow = ScriptedReply(status=400, body={"error": {"code": "context_length_exceeded", "message": "too long"}})
    async with talking(overflow, GOOD, names=("first", "second")) as talk:
        reply = await talk.say()
    assert reply.attempts[0].cause == "model_context_overflow"
    assert reply.model == "second"


async def test_a_wait_can_be_cancelled() -> None:
    """S42"""
    async with talking(ScriptedReply(status=429, headers={"Retry-After": "50"}), GOOD, retries=1) as talk:
        task = asyncio.create_task(talk.say())
        while not talk.of_kind("model_waiting"):
            await asyncio.sleep(0.005)
        task.cancel()
        started = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert time.monotonic() - started < 5
    assert talk.of_kind("model_waiting")[0]["seconds"] == 50


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    """S42: the final error keeps status and body."""
    limited = ScriptedReply(status=429, headers={"Retry-After": "30"}, body={"error": {"message": "quota of team x"}})
    async with talking(limited, GOOD, retries=1) as talk:
        started = time.monotonic()
        with pytest.raises(RateLimitedError, match="quota of team x") as caught:
            await talk.say(deadline=started + 20)
    assert time.monotonic() - started < 5
    assert (caught.value.status, caught.value.retry_after) == (429, "30")


async def test_a_wait_beyond_the_deadline_goes_to_the_fallback_at_once() -> None:
    limited = ScriptedReply(status=429, headers={"Retry-After": "30"})
    async with talking(limited, GOOD, names=("first", "second"), retries=1) as talk:
        reply = await talk.say(deadline=time.monotonic() + 20)
    assert [attempt.model for attempt in reply.attempts] == ["first", "second"]
    assert talk.of_kind("model_waiting") == []


async def test_retries_of_each_model_come_before_the_next_model() -> None:
    async with talking(BUSY, BUSY, BUSY, GOOD, names=("first", "second"), retries=1) as talk:
        reply = await talk.say()
    assert [request.model for request in talk.server.requests] == ["first", "first", "second", "second"]
    assert len(talk.of_kind("stream_reset")) == 3
    assert reply.model == "second"


NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        ("1.5", 1.5),
        ("0", SHORTEST),
        ("-5", 0.5),
        ("1e9", LONGEST),
        ("inf", 0.5),
        ("nan", 0.5),
        ("soon", 0.5),
        ("", 0.5),
        (None, 0.5),
        (format_datetime(NOW - timedelta(hours=1), usegmt=True), SHORTEST),
        (format_datetime(NOW + timedelta(seconds=9), usegmt=True), 9.0),
        (format_datetime(NOW + timedelta(days=9), usegmt=True), LONGEST),
        ("Mon, 99 Foo 2026 25:61:61 GMT", 0.5),
    ],
)
def test_retry_after_is_read_and_clamped(header: str | None, seconds: float) -> None:
    """S42"""
    assert seconds_to_wait(header, retry=1, now=NOW) == pytest.approx(seconds)


def test_without_a_header_waits_grow_and_stay_bounded() -> None:
    waits = [seconds_to_wait(None, retry=retry, now=NOW) for retry in range(1, 40)]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(waits) == LONGEST


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured(status: int) -> None:
    """S42"""
    async with talking(ScriptedReply(status=status, headers={"Retry-After": "0.4"}), GOOD, retries=1) as talk:
        started = time.monotonic()
        await talk.say()
    assert time.monotonic() - started >= 0.4
    assert talk.of_kind("model_waiting")[0]["seconds"] == pytest.approx(0.4)


async def test_every_attempt_is_an_event_with_its_usage() -> None:
    usage = ScriptedUsage(input=10, output=2, cached=4, reasoning=1)
    async with talking(BUSY, ScriptedReply(text="Hi.", usage=usage), retries=1) as talk:
        reply = await talk.say()
    failed, completed = talk.of_kind("model_attempt")
    assert (failed["model"], failed["status"], failed["http_status"], failed["committed"], failed["usage"]) == (
        "first",
        "failed",
        503,
        False,
        {},
    )
    assert "busy" in failed["detail"]
    assert completed["usage"] == {
        "input_tokens": 10,
        "output_tokens": 2,
        "cached_tokens": 4,
        "reasoning_tokens": 1,
        "total_tokens": 12,
    }
    assert reply.usage.total == 12


async def test_an_answer_without_reported_usage_is_estimated_and_says_so() -> None:
    async with talking(GOOD) as talk:
        reply = await talk.say()
    assert reply.usage.estimated
    assert reply.usage.output == 2
    assert (reply.usage.input or 0) > 5


async def test_an_aborted_stream_counts_what_was_reported() -> None:
    """S46: with running totals."""
    totals = event(chunk({"content": "one "}, usage={"prompt_tokens": 9, "completion_tokens": 1}))
    async with talking(raw(totals + ": never sent\n\n", silent_after=len(totals))) as talk:
        task = asyncio.create_task(talk.say())
        while not talk.shown:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert talk.draft.usage.record() == {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}


async def test_an_aborted_stream_without_totals_is_estimated() -> None:
    """S46"""
    async with talking(ScriptedReply(text="word " * 100, pause=0.005)) as talk:
        task = asyncio.create_task(talk.say())
        while len(talk.of_kind("token")) < 10:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    usage = talk.draft.usage
    assert usage.estimated
    assert usage.output == -(-len(talk.shown) // 4)


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        ModelChain.of(ModelSpec(model="a"), ModelSpec(model="a"))
    ModelChain.of(ModelSpec(model="a"), ModelSpec(model="a", name="a elsewhere"))


async def test_many_replies_at_once_do_not_mix() -> None:
    """One session and one chat model serve every run of a process."""
    script = [
        ScriptedReply(when=When(user_contains=f"<{number}>"), text=f"answer <{number}> in some words", pause=0.002, times=0)
        for number in range(40)
    ]
    async with talking(*script) as talk:
        replies = await asyncio.gather(*[talk.say(f"question <{number}>") for number in range(40)])
    assert [reply.message.content for reply in replies] == [f"answer <{number}> in some words" for number in range(40)]
    assert len({reply.message.id for reply in replies}) == 40
