"""Damaged streams always end in a typed outcome, and a call that arrived broken never comes out as one that may run."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from nodes.models.answer import AnswerReader, BadEventError, ReportedInStreamError
from nodes.models.errors import ModelError
from nodes.models.script import ScriptedReply
from nodes.models.spec import Timeouts
from nodes.models.sse import EventReader, OversizedEventError
from tests.models.streams import WELL_FORMED, call, chunk, event
from tests.models.talk import TOOLS, talking

pytestmark = pytest.mark.anyio

BODIES = [body.encode() for name, body in WELL_FORMED.items() if name != "many pieces"]
JUNK = [
    b"\x00",
    b"\xff\xfe",
    b"\r",
    b"\n\n",
    b"data: ",
    b"null",
    b'"',
    b"{",
    b"}",
    b"[]",
    b"\\",
    b"\\ud83e",
    b": x\n\n",
    b"data: [DONE]\n\n",
]
MEANT = {
    json.dumps(args, sort_keys=True)
    for args in (
        {"command": "b02-heartbeat"}, {"command": "ls"}, {"command": "a b"}, {"command": "a"}, {"command": "b"},
        {"x": 1}, {"y": 2}, {"path": "/tmp"}, {"a": {"b": [1, 2.5, True, None, "x"]}, "c": ""},
        {"command": 'printf "a\\n" é'}, {"q": "naïve"}, {"command": "echo 🦊 && ls"},
    )
}  # fmt: skip


def cut(body: bytes, rng: random.Random) -> bytes:
    return body[: rng.randrange(len(body))]


def dropped(body: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(body))
    return body[:start] + body[start + rng.randrange(1, 60) :]


def flipped(body: bytes, rng: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randrange(1, 6)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def littered(body: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(body))
    return body[:place] + rng.choice(JUNK) + body[place:]


def shuffled(body: bytes, rng: random.Random) -> bytes:
    events = body.split(b"\n\n")
    rng.shuffle(events)
    return b"\n\n".join(events)


def doubled(body: bytes, rng: random.Random) -> bytes:
    events = body.split(b"\n\n")
    place = rng.randrange(len(events))
    return b"\n\n".join([*events[: place + 1], *events[place:]])


def odd_types(body: bytes, rng: random.Random) -> bytes:
    """Replaces one value somewhere in one event by a value of another type."""
    events = body.split(b"\n\n")
    place = rng.randrange(len(events))
    try:
        value = json.loads(events[place].removeprefix(b"data: "))
    except ValueError:
        return body
    spots: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        for key in list(item.keys() if isinstance(item, dict) else range(len(item))):
            spots.append((item, key))
            if isinstance(item[key], dict | list):
                waiting.append(item[key])
    if spots:
        owner, key = rng.choice(spots)
        owner[key] = rng.choice([None, 7, -1, 1.5, True, "", "x", "\ud83e", [], {}, [[]], {"a": None}, 10**30])
    events[place] = b"data: " + json.dumps(value).encode()
    return b"\n\n".join(events)


def fragments(_: bytes, rng: random.Random) -> bytes:
    """A stream of tool call fragments with indexes, ids and names thrown together."""
    deltas = [
        call(
            rng.choice(['{"x":1}', '{"x":', "1}", "", "null", None, '{"delete":"all"']),
            index=rng.choice([0, 0, 1, None, "0"]),
            call_id=rng.choice([None, "", "a", "b"]),
            name=rng.choice([None, "", "find", "execute", "look"]),
        )
        for _ in range(rng.randrange(1, 8))
    ]
    return "".join([*(event(chunk(delta)) for delta in deltas), event(chunk(finish="tool_calls")), "data: [DONE]\n\n"]).encode()


DAMAGES = (cut, dropped, flipped, littered, shuffled, doubled, odd_types, fragments)


def damaged(seed: int) -> bytes:
    rng = random.Random(seed)
    body = rng.choice(BODIES)
    for _ in range(rng.randrange(1, 3)):
        body = rng.choice(DAMAGES)(body, rng) or b"\n"
    return body


def outcome(body: bytes) -> str:
    """Feeds a stream to the pure part, as the wire does, and says how it ended."""
    events, reader = EventReader(), AnswerReader(tools={"find": True, "execute": False, "look": True})
    try:
        for place in range(0, len(body), 37):
            for item in events.feed(body[place : place + 37]):
                if not reader.done:
                    reader.feed(item)
        if not reader.finish_reason:
            return "truncated"
        answer = reader.finish()
    except (BadEventError, ReportedInStreamError, OversizedEventError) as error:
        return type(error).__name__
    for item in answer.calls:
        assert isinstance(item.arguments, dict)
        assert item.name
        json.dumps(item.arguments).encode()
    answer.text.encode()
    return "answer"


def test_damaged_streams_end_in_a_typed_outcome() -> None:
    ends = {outcome(damaged(seed)) for seed in range(200)}
    assert {"answer", "truncated", "BadEventError"} <= ends


@pytest.mark.soak
def test_two_thousand_damaged_streams_end_in_a_typed_outcome() -> None:
    for seed in range(2_000):
        outcome(damaged(seed))


@pytest.mark.parametrize("name", [name for name in WELL_FORMED if "call" in name or name in {"three fragments", "rich"}])
def test_a_stream_cut_anywhere_gives_the_meant_calls_or_none(name: str) -> None:
    """S37, S38: never a call with other arguments than the model wrote."""
    body = WELL_FORMED[name].encode()
    for place in range(len(body)):
        events, reader = EventReader(), AnswerReader(tools={"find": True, "execute": False})
        for item in events.feed(body[:place]):
            reader.feed(item)
        if reader.finish_reason:
            assert {json.dumps(item.arguments, sort_keys=True) for item in reader.finish().calls} <= MEANT


async def ends_over_http(seeds: range) -> set[str]:
    ends: set[str] = set()
    replies = [
        ScriptedReply(
            raw=(damaged(seed).decode("utf-8", "surrogateescape"),),
            framing="close" if seed % 2 else "chunked",
            split=(None, 1, 13)[seed % 3],
            disconnect_after=seed * 7 % 900 if seed % 5 == 0 else None,
        )
        for seed in seeds
    ]
    timeouts = Timeouts(connect=5.0, first_byte=20.0, between_chunks=20.0)
    async with talking(*replies, timeouts=timeouts) as talk:
        for _ in seeds:
            try:
                reply = await talk.say(tools=TOOLS)
            except ModelError as error:
                ends.add(error.code)
            else:
                check(reply.message)
                ends.add("reply")
    return ends


def check(message: AIMessage) -> None:
    message.model_dump_json().encode()
    assert message.content or message.tool_calls or message.invalid_tool_calls
    assert all(item["name"] and item["id"] for item in message.tool_calls)
    assert len({item["id"] for item in message.tool_calls}) == len(message.tool_calls)


async def test_damaged_streams_over_http_end_in_a_reply_or_an_error_of_this_project() -> None:
    assert {"reply", "model_protocol", "model_truncated"} <= await ends_over_http(range(10_000, 10_150))


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_two_thousand_damaged_streams_over_http_end_in_a_reply_or_an_error_of_this_project() -> None:
    assert {"reply", "model_protocol", "model_truncated"} <= await ends_over_http(range(20_000, 22_000))
