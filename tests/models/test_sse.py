"""The form of the stream: line ends, comments, packets, and characters that are cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.models.answer import AnswerReader
from nodes.models.script import Script, ScriptedReply
from nodes.models.sse import Event, EventReader, OversizedEventError
from tests.models.streams import RICH, chunk, event, stream, text, usage
from tests.models.talk import raw, talking

pytestmark = pytest.mark.anyio

FORMS: dict[str, Callable[[str], str]] = {
    "LF": lambda body: body,
    "CRLF": lambda body: body.replace("\n", "\r\n"),
    "CR": lambda body: body.replace("\n", "\r"),
    "no space after the colon": lambda body: body.replace("data: ", "data:"),
    "byte order mark": lambda body: "\ufeff" + body,
    "comments between": lambda body: body.replace("\n\n", "\n\n: still here\n\n:\n\n"),
    "named events and pings": lambda body: body.replace("data: {", "event: message\nid: 7\nretry: 10\ndata: {").replace(
        "\n\n", "\n\nevent: ping\ndata: {}\n\n"
    ),
    "several data lines": lambda body: body.replace('"choices"', '\ndata: "choices"').replace(
        '\n\ndata: "choices', '\ndata: "choices'
    ),
    "blank lines everywhere": lambda body: "\n\n" + body.replace("\n\n", "\n\n\n\n"),
}


@pytest.mark.parametrize("packets", ["whole", "single bytes"])
@pytest.mark.parametrize("name", FORMS)
async def test_every_form_of_the_stream_gives_the_same_message(name: str, packets: str) -> None:
    """S39: also a CRLF that is cut between two packets."""
    split = None if packets == "whole" else 1
    async with talking(raw(RICH), raw(FORMS[name](RICH), split=split)) as talk:
        plain = await talk.say()
        other = await talk.say()
    assert other.message.content == plain.message.content == "Grüße, 日本語 and 🦊 done.\n"
    assert other.message.tool_calls == plain.message.tool_calls
    assert other.usage == plain.usage


async def test_a_character_cut_between_packets_stays_whole() -> None:
    """S41"""
    body = stream(*text("a 🦊 and €"), finish="stop")
    place = body.encode().index("🦊".encode())
    async with talking(raw(body, split_at=(place + 1,))) as talk:
        reply = await talk.say()
    assert reply.message.content == "a 🦊 and €"


async def test_a_character_cut_between_chunks_by_escapes_stays_whole() -> None:
    """S41"""
    first = 'data: {"choices":[{"index":0,"delta":{"content":"x\\ud83e"}}]}\n\n'
    second = 'data: {"choices":[{"index":0,"delta":{"content":"\\udd8ay"},"finish_reason":"stop"}]}\n\n'
    async with talking(raw(first + second)) as talk:
        reply = await talk.say()
    assert reply.message.content == talk.shown == "x🦊y"
    assert [payload["text"] for payload in talk.of_kind("token")] == ["x", "🦊y"]


async def test_a_truly_broken_byte_shows_one_mark() -> None:
    """S41"""
    broken = 'data: {"choices":[{"index":0,"delta":{"content":"a\udcffb"},"finish_reason":"stop"}]}\n\n'
    async with talking(raw(broken)) as talk:
        reply = await talk.say()
    assert reply.message.content == "a\ufffdb"


USAGE_PLACES = {
    "last": event(chunk({"content": "Hi"})) + event(chunk(finish="stop")) + event(usage(3, 4)),
    "first": event(usage(3, 4)) + event(chunk({"content": "Hi"})) + event(chunk(finish="stop")),
    "twice": event(chunk({"content": "Hi"})) + event(chunk(finish="stop")) + event(usage(3, 4)) * 2,
    "running totals": event(chunk({"content": "Hi"}, usage=usage(3, 1)["usage"]))
    + event(chunk(finish="stop", usage=usage(3, 4)["usage"])),
    "null": event(chunk({"content": "Hi"}, usage=None))
    + event(chunk(finish="stop"))
    + event({**usage(3, 4)})
    + event({**chunk(), "choices": [], "usage": None}),
    "choices null": event(chunk({"content": "Hi"})) + event(chunk(finish="stop")) + event({**usage(3, 4), "choices": None}),
}


@pytest.mark.parametrize("place", USAGE_PLACES)
async def test_usage_is_counted_once_wherever_it_stands(place: str) -> None:
    """S40"""
    async with talking(raw(USAGE_PLACES[place] + "data: [DONE]\n\n")) as talk:
        reply = await talk.say()
    assert (reply.usage.input, reply.usage.output, reply.usage.estimated) == (3, 4, False)
    assert reply.message.usage_metadata is not None
    assert reply.message.usage_metadata["total_tokens"] == 7


def read(packets: list[bytes]) -> list[Event]:
    reader = EventReader()
    return [item for packet in packets for item in reader.feed(packet)]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_cutting_a_stream_anywhere_never_changes_its_events(body: bytes, places: list[int]) -> None:
    edges = sorted({0, len(body), *(place for place in places if place < len(body))})
    packets = [body[start:end] for start, end in itertools.pairwise(edges)]
    assert read(packets) == read([body])


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data:x", b"data: y", b":c", b"event: e", b"\xef\xbb\xbf"]), max_size=24)
)
def test_single_bytes_give_the_events_of_the_whole(parts: list[bytes]) -> None:
    body = b"".join(parts)
    assert read([body[place : place + 1] for place in range(len(body))]) == read([body])


def test_an_event_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(OversizedEventError):
        read([b"data: " + b"x" * 1_000_000] * 20)


def message_of(packets: list[bytes]) -> object:
    events = EventReader()
    reader = AnswerReader(tools={"find": True, "execute": False})
    for packet in packets:
        for item in events.feed(packet):
            reader.feed(item)
    return reader.finish()


WHOLE = RICH.encode()
MEANT = message_of([WHOLE])


def test_a_recorded_stream_cut_at_each_byte_gives_the_same_message() -> None:
    """Every boundary, the ones inside characters and line ends included."""
    for place in range(1, len(WHOLE)):
        assert message_of([WHOLE[:place], WHOLE[place:]]) == MEANT


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=40))
def test_a_recorded_stream_in_random_packets_gives_the_same_message(places: list[int]) -> None:
    edges = sorted({0, len(WHOLE), *places})
    assert message_of([WHOLE[start:end] for start, end in itertools.pairwise(edges)]) == MEANT


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_packets_of_any_size_over_http_give_the_same_message(size: int) -> None:
    replies = (ScriptedReply(raw=(RICH,)), ScriptedReply(raw=(RICH,), split=size))
    assert len(Script.of(*replies).replies) == 2
    async with talking(*replies) as talk:
        assert (await talk.say()).message.tool_calls == (await talk.say()).message.tool_calls
