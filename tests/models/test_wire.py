"""Ends, breaks, stalls and cancels of a stream, over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time

import pytest

from nodes.models.errors import (
    DisconnectedError,
    EmptyReplyError,
    ModelDeadlineError,
    ModelTimeoutError,
    ProtocolError,
    ReportedError,
    TruncatedReplyError,
)
from nodes.models.script import ScriptedCall, ScriptedReply
from nodes.models.spec import Timeouts
from tests.models.streams import call, chunk, event, stream, text
from tests.models.talk import raw, talking

pytestmark = pytest.mark.anyio

GOOD = ScriptedReply(text="Good.")
COMPLETE_CALL = stream(call('{"command": "ls"}', call_id="a", name="execute"), finish=None, done=False)


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_closed_after_the_headers_is_an_error_that_may_be_retried(framing: str) -> None:
    """S38 a"""
    async with talking(ScriptedReply(text="x", disconnect_after=0, framing=framing), GOOD, retries=1) as talk:
        reply = await talk.say()
    assert reply.message.content == "Good."
    assert [attempt.status for attempt in reply.attempts] == ["failed", "completed"]


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_closed_after_half_a_text_is_an_error_and_keeps_the_text(framing: str) -> None:
    """S38 b, S45"""
    async with talking(ScriptedReply(text="half of it", disconnect_after=260, framing=framing), GOOD, retries=1) as talk:
        with pytest.raises(DisconnectedError):
            await talk.say()
    assert len(talk.server.requests) == 1
    kept = talk.draft.interrupted()
    assert kept is not None
    assert kept.content == talk.shown == "half "
    assert kept.response_metadata["interrupted"] is True
    assert kept.tool_calls == []


@pytest.mark.parametrize("end", ["", "data: [DONE]\n\n"])
async def test_complete_arguments_without_a_finish_reason_run_nothing(end: str) -> None:
    """S38 c: a clean end that does not say how it ended is an error, with and without [DONE]."""
    async with talking(raw(COMPLETE_CALL + end, framing="close")) as talk:
        with pytest.raises(TruncatedReplyError):
            await talk.say()
    assert talk.draft.interrupted() is None


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_a_finish_reason_without_done_is_a_success(framing: str) -> None:
    """S38 d"""
    async with talking(ScriptedReply(text="Done.", done=False, framing=framing)) as talk:
        assert (await talk.say()).message.content == "Done."


async def test_a_connection_that_breaks_after_the_finish_reason_is_a_success() -> None:
    """S38 d"""
    body = stream(*text("Done."), finish="stop", done=False)
    async with talking(raw(body + ": more\n\n", disconnect_after=len(body))) as talk:
        assert (await talk.say()).message.content == "Done."


async def test_the_last_event_counts_without_its_blank_line() -> None:
    body = stream(*text("Done."), finish="stop", done=False).rstrip("\n")
    async with talking(raw(body, framing="close")) as talk:
        assert (await talk.say()).message.content == "Done."


async def test_half_an_event_at_the_end_is_a_truncation() -> None:
    async with talking(raw('data: {"choices": [{"delta": {"con', framing="close")) as talk:
        with pytest.raises(TruncatedReplyError):
            await talk.say()


EMPTY = {
    "only a finish reason": stream(finish="stop"),
    "only a role": stream({"role": "assistant", "content": ""}, finish="stop"),
    "only thinking, cut": stream({"reasoning_content": "hm"}, finish="length"),
    "a ghost call": stream(call("", call_id="a", name="")),
}


@pytest.mark.parametrize("name", EMPTY)
async def test_an_empty_stream_is_a_failure(name: str) -> None:
    async with talking(raw(EMPTY[name]), GOOD, names=("first", "second")) as talk:
        reply = await talk.say()
    assert reply.model == "second"
    assert reply.attempts[0].cause == EmptyReplyError.code


BROKEN = {
    "not json": "data: {nope\n\n",
    "an array": "data: []\n\n",
    "choices are text": event({"choices": "x"}),
    "choices hold text": event({"choices": ["x"]}),
    "delta is text": event({"choices": [{"index": 0, "delta": "x"}]}),
    "content is a number": event(chunk({"content": 7})),
    "content is an object": event(chunk({"content": {"text": "x"}})),
    "finish reason is a number": event({"choices": [{"index": 0, "delta": {}, "finish_reason": 7}]}),
    "deep nesting": "data: " + "[" * 100_000 + "\n\n",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_event_that_breaks_the_wire_is_a_protocol_error(name: str) -> None:
    async with talking(raw(BROKEN[name] + stream(*text("x"), finish="stop"))) as talk:
        with pytest.raises(ProtocolError):
            await talk.say()


async def test_an_answer_that_is_no_stream_says_how_it_starts() -> None:
    async with talking(raw("<html>Welcome to the proxy</html>\n")) as talk:
        with pytest.raises(TruncatedReplyError, match="<html>Welcome"):
            await talk.say()


async def test_an_error_inside_the_stream_is_reported_as_what_it_is() -> None:
    async with talking(raw(event({"error": {"message": "engine on fire"}}))) as talk:
        with pytest.raises(ReportedError, match="engine on fire"):
            await talk.say()


@pytest.mark.parametrize("split", [None, 1])
async def test_text_before_an_error_was_seen_however_the_stream_was_cut(split: int | None) -> None:
    body = event(chunk({"content": "Hel"})) + event({"error": "broken"})
    async with talking(raw(body, split=split), GOOD, retries=1) as talk:
        with pytest.raises(ReportedError):
            await talk.say()
    assert talk.shown == "Hel"


async def test_what_follows_done_is_not_read() -> None:
    async with talking(raw(stream(*text("Hi"), finish="stop") + "data: {nope\n\n")) as talk:
        assert (await talk.say()).message.content == "Hi"


async def test_an_error_status_inside_the_stream_counts_as_that_status() -> None:
    async with talking(raw(event({"error": {"message": "slow down", "code": 429}})), GOOD, retries=1) as talk:
        reply = await talk.say()
    assert reply.attempts[0].http_status == 429


async def test_a_provider_that_ignores_the_wish_for_a_stream_is_understood() -> None:
    whole = {
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"content": "Hi", **call('{"x":1}', call_id="a", name="find")},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    body = json.dumps(whole)
    async with talking(raw(body, headers={"content-type": "application/json"})) as talk:
        reply = await talk.say()
    assert (reply.message.content, reply.message.tool_calls[0]["args"]) == ("Hi", {"x": 1})
    assert reply.usage.input == 1


async def test_content_blocks_and_refusals_are_text() -> None:
    deltas = [{"content": [{"type": "text", "text": "I "}]}, {"refusal": "will not."}]
    async with talking(raw(stream(*deltas, finish="stop"))) as talk:
        assert (await talk.say()).message.content == "I will not."


async def test_thinking_is_shown_apart_and_is_not_the_answer() -> None:
    deltas = [{"reasoning_content": "let me see"}, {"content": "42"}]
    async with talking(raw(stream(*deltas, finish="stop"))) as talk:
        reply = await talk.say()
    assert reply.message.content == talk.shown == "42"
    assert talk.of_kind("reasoning") == [{"text": "let me see"}]


ROLE = event(chunk({"role": "assistant"}))
SHORT = Timeouts(connect=0.5, first_byte=0.15, between_chunks=0.15)


@pytest.mark.parametrize(
    ("fault", "phase"),
    [
        (ScriptedReply(hang=True), "first byte"),
        (ScriptedReply(text="x", silent_after=0), "first byte"),
        (raw(ROLE + event(chunk({"content": "x"})), silent_after=len(ROLE)), "between chunks"),
    ],
)
async def test_silence_is_a_timeout_that_names_its_phase(fault: ScriptedReply, phase: str) -> None:
    async with talking(fault, timeouts=SHORT) as talk:
        with pytest.raises(ModelTimeoutError) as caught:
            await talk.say()
        await talk.server.wait_idle()
    assert caught.value.phase == phase
    assert talk.server.requests[0].client_left


async def test_keep_alives_do_not_hide_a_stalled_model() -> None:
    fault = raw(event(chunk({"role": "assistant"})), *[": alive\n\n"] * 400, pause=0.02)
    async with talking(fault, timeouts=SHORT) as talk:
        with pytest.raises(ModelTimeoutError, match="between chunks"):
            await talk.say()


async def test_a_slow_drip_that_never_stalls_is_not_a_timeout() -> None:
    reply = ScriptedReply(text="one two three four five six", pause=0.05)
    async with talking(reply, timeouts=Timeouts(first_byte=1.0, between_chunks=1.0)) as talk:
        assert (await talk.say()).message.content == "one two three four five six"


async def test_an_address_that_swallows_connections_is_a_connect_timeout() -> None:
    """A listener that never accepts and whose queue is full: the kernel lets further connections wait."""
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        async with talking(timeouts=Timeouts(connect=0.2, first_byte=5.0)) as talk:
            url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
            talk.specs[0] = talk.specs[0].model_copy(update={"base_url": url})
            with pytest.raises(ModelTimeoutError) as caught:
                await talk.say()
    assert caught.value.phase == "connect"


async def test_the_runs_deadline_ends_a_stream_and_no_other_model_is_asked() -> None:
    async with talking(ScriptedReply(hang=True), GOOD, names=("first", "second")) as talk:
        with pytest.raises(ModelDeadlineError):
            await talk.say(deadline=time.monotonic() + 0.2)
    assert len(talk.server.requests) == 1


async def test_a_deadline_that_has_passed_sends_nothing() -> None:
    async with talking(GOOD) as talk:
        with pytest.raises(ModelDeadlineError):
            await talk.say(deadline=time.monotonic() - 1)
    assert talk.server.requests == []


@pytest.mark.parametrize("fault", [ScriptedReply(hang=True), ScriptedReply(text="x", silent_after=0)])
async def test_cancel_before_the_first_chunk_closes_the_connection(fault: ScriptedReply) -> None:
    async with talking(fault) as talk:
        task = asyncio.create_task(talk.say())
        await talk.server.wait_for(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await talk.server.wait_idle()
    assert talk.server.requests[0].client_left
    assert talk.of_kind("model_attempt")[0]["status"] == "cancelled"


async def test_cancel_in_the_middle_closes_the_connection_and_shows_nothing_more() -> None:
    """S45: the text that was shown is kept, marked, and holds no half tool call."""
    words = " ".join(f"word{place}" for place in range(200))
    reply = ScriptedReply(text=words, pause=0.01, calls=(ScriptedCall(name="execute", arguments={"command": "ls"}),))
    async with talking(reply) as talk:
        task = asyncio.create_task(talk.say())
        while len(talk.of_kind("token")) < 50:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        shown = talk.shown
        await talk.server.wait_idle()
        assert talk.server.requests[0].client_left
        assert talk.shown == shown
    kept = talk.draft.interrupted()
    assert kept is not None
    assert (kept.content, kept.tool_calls, kept.response_metadata["interrupted"]) == (shown, [], True)


async def test_connections_are_used_again() -> None:
    """Each call on a fresh connection would cost a TLS handshake."""
    async with talking(*[ScriptedReply(text="x")] * 5) as talk:
        for _ in range(5):
            await talk.say()
        assert talk.server.connections_seen == 1
