"""Tool calls from fragments: what belongs together, what cannot be told apart, and what must not run. All over real HTTP."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.models.assembly import CallAssembler
from nodes.models.errors import ProtocolError
from tests.models.streams import call, chunk, event, stream
from tests.models.talk import raw, talking

pytestmark = pytest.mark.anyio

OSLO = {"t": "Oslo"}


def one(name: str, args: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, args)]


UNDERSTOOD: dict[str, tuple[list[dict[str, Any]], list[tuple[str, dict[str, Any]]]]] = {
    "S32 index null, name and id empty": (
        [
            call(index=None, name="find", call_id="k1"),
            call(index=None, name="", call_id="k1"),
            call('{"t":"Os', index=None, name="", call_id=""),
            call('lo"}', index=None, call_id=""),
        ],
        one("find", OSLO),
    ),
    "S32 a ghost that says nothing": (
        [call('{"t":"Oslo"}', call_id="a", name="find"), call("", index=1, call_id="", name="")],
        one("find", OSLO),
    ),
    "S33 one index, two ids": (
        [call('{"x":1}', call_id="a", name="find"), call('{"x":2}', call_id="b", name="find")],
        [("find", {"x": 1}), ("find", {"x": 2})],
    ),
    "S33 one index, two ids, in pieces": (
        [call('{"x":', call_id="a", name="find"), call("1}"), call('{"x":', call_id="b", name="look"), call("2}")],
        [("find", {"x": 1}), ("look", {"x": 2})],
    ),
    "S34 interleaved by index": (
        [
            call('{"x":', call_id="a", name="find"),
            call('{"y":', index=1, call_id="b", name="find"),
            call("1}"),
            call("2}", index=1),
        ],
        [("find", {"x": 1}), ("find", {"y": 2})],
    ),
    "S34 interleaved by id without any index": (
        [
            call('{"x":', index=None, call_id="a", name="find"),
            call('{"y":', index=None, call_id="b", name="find"),
            call("1}", index=None, call_id="a"),
            call("2}", index=None, call_id="b"),
        ],
        [("find", {"x": 1}), ("find", {"y": 2})],
    ),
    "id in every piece": ([call('{"t":', call_id="a", name="find"), call('"Oslo"}', call_id="a")], one("find", OSLO)),
    "name repeated in every piece": (
        [call('{"t":', call_id="a", name="find"), call('"Oslo"}', name="find")],
        one("find", OSLO),
    ),
    "late name": ([call('{"t":', call_id="a"), call('"Oslo"}', name="find")], one("find", OSLO)),
    "late id": ([call('{"t":', name="find"), call('"Oslo"}', call_id="a")], one("find", OSLO)),
    "name in two pieces": ([call("", call_id="a", name="exe"), call('{"t":"Oslo"}', name="cute")], one("execute", OSLO)),
    "index comes late": ([call('{"t":', index=None, call_id="a", name="find"), call('"Oslo"}', index=0)], one("find", OSLO)),
    "index goes missing": ([call('{"t":', index=0, call_id="a", name="find"), call('"Oslo"}', index=None)], one("find", OSLO)),
    "index as text": ([call('{"t":', index="0", call_id="a", name="find"), call('"Oslo"}', index="0")], one("find", OSLO)),
    "index starts at seven": ([call('{"t":', index=7, call_id="a", name="find"), call('"Oslo"}', index=7)], one("find", OSLO)),
    "no id and no index at all": (
        [call('{"x":1}', index=None, name="find"), call('{"x":2}', index=None, name="find")],
        [("find", {"x": 1}), ("find", {"x": 2})],
    ),
    "index reused without ids": (
        [call('{"x":1}', name="find"), call('{"x":2}', name="find")],
        [("find", {"x": 1}), ("find", {"x": 2})],
    ),
    "one id for two calls": (
        [call('{"x":1}', index=0, call_id="s", name="find"), call('{"x":2}', index=1, call_id="s", name="find")],
        [("find", {"x": 1}), ("find", {"x": 2})],
    ),
    "arguments as an object": (
        [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "find", "arguments": {"t": "Oslo"}}}]}],
        one("find", OSLO),
    ),
    "all in one delta": (
        [
            {
                "tool_calls": call('{"x":1}', call_id="a", name="find")["tool_calls"]
                + call('{"x":2}', index=1, call_id="b", name="find")["tool_calls"]
            }
        ],
        [("find", {"x": 1}), ("find", {"x": 2})],
    ),
    "a character escaped in two halves (S41)": (
        [call('{"t":"\\ud83e', call_id="a", name="find"), call('\\udd8a"}')],
        one("find", {"t": "🦊"}),
    ),
}


@pytest.mark.parametrize("name", UNDERSTOOD)
async def test_fragments_become_the_calls_that_were_meant(name: str) -> None:
    """S32, S33, S34, EVO-3: also with missing, reused and late indexes, ids and names."""
    deltas, expected = UNDERSTOOD[name]
    async with talking(raw(stream(*deltas))) as talk:
        reply = await talk.say()
    assert [(item["name"], item["args"]) for item in reply.message.tool_calls] == expected
    assert reply.message.invalid_tool_calls == []
    ids = [item["id"] for item in reply.message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


AMBIGUOUS: dict[str, list[dict[str, Any]]] = {
    "interleaved without index and id": [
        call('{"x":', index=None, call_id="a", name="find"),
        call('{"y":', index=None, call_id="b", name="find"),
        call("1}", index=None),
        call("2}", index=None),
    ],
    "one index for two unfinished calls": [
        call('{"x":', call_id="a", name="find"),
        call('{"y":', call_id="b", name="find"),
        call("1}"),
    ],
    "an empty call that needs arguments, and a piece that names nobody": [
        call("", index=None, call_id="a", name="execute"),
        call("", index=None, call_id="b", name="find"),
        call('{"command":"ls"}', index=None),
    ],
    "a call starts inside another one": [call('{"x":', name="find"), call('{"y":1}', name="look")],
    "one call with two names": [call('{"x":', call_id="a", name="find"), call("1}", call_id="a", name="look")],
    "arguments without a name": [call('{"x":1}', call_id="a")],
    "an id for each piece": [call('{"x":', call_id="a", name="find"), call("1}", call_id="b")],
    "an id that moves to another index": [call('{"x":', index=0, call_id="a", name="find"), call("1}", index=1, call_id="a")],
    "one id for two unfinished calls": [
        call('{"x":', index=0, call_id="s", name="find"),
        call('{"y":', index=1, call_id="s", name="find"),
        call("1}", index=None, call_id="s"),
    ],
    "index that is no number": [call("{}", index="first", call_id="a", name="find")],
    "index that is true": [call("{}", index=True, call_id="a", name="find")],
    "fragment that is no object": [{"tool_calls": ["find"]}],
    "calls that are no list": [{"tool_calls": {"name": "find"}}],
    "function that is no object": [{"tool_calls": [{"index": 0, "id": "a", "function": "find"}]}],
    "name that is no text": [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": 7}}]}],
    "arguments that are a list": [{"tool_calls": [{"index": 0, "id": "a", "function": {"name": "find", "arguments": [1]}}]}],
    "more calls than anyone means": [call("{}", index=place, call_id=f"i{place}", name="look") for place in range(300)],
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_what_cannot_be_told_apart_is_a_protocol_error_and_gives_no_call(name: str) -> None:
    async with talking(raw(stream(*AMBIGUOUS[name]))) as talk:
        with pytest.raises(ProtocolError) as caught:
            await talk.say()
    assert "first" in str(caught.value)
    assert talk.draft.interrupted() is None


USELESS = ["null", "[]", '"x"', '{"a":1', "7", "true", "{}}", '{"a":NaN}', "{'a':1}", '{"a":' * 80 + "1" + "}" * 80]


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
@pytest.mark.parametrize("name", ["look", "find"])
async def test_empty_arguments_are_an_empty_object_where_the_schema_needs_none(name: str, arguments: str) -> None:
    """S36"""
    async with talking(raw(stream(call(arguments, call_id="a", name=name)))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls == [{"name": name, "args": {}, "id": "a", "type": "tool_call"}]


@pytest.mark.parametrize("arguments", ["", " "])
@pytest.mark.parametrize("name", ["execute", "unheard_of"])
async def test_empty_arguments_are_unusable_where_the_schema_needs_some_or_is_unknown(name: str, arguments: str) -> None:
    """S36"""
    async with talking(raw(stream(call(arguments, call_id="a", name=name)))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls == []
    assert [item["name"] for item in reply.message.invalid_tool_calls] == [name]


@pytest.mark.parametrize("name", ["look", "execute", "delete"])
@pytest.mark.parametrize("arguments", USELESS)
async def test_arguments_that_are_no_object_never_become_a_call(name: str, arguments: str) -> None:
    """S36, S37: not repaired, not turned into {}, kept as they came with the reason for the model."""
    async with talking(raw(stream(call(arguments, call_id="a", name=name)))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls == []
    (unusable,) = reply.message.invalid_tool_calls
    assert (unusable["name"], unusable["id"], unusable["args"]) == (name, "a", arguments)
    assert "arguments are" in (unusable["error"] or "")


async def test_an_empty_object_stays_an_empty_object_even_where_something_is_required() -> None:
    """S36: whether it satisfies the schema is the tool's own check, which answers the model."""
    async with talking(raw(stream(call("{}", call_id="a", name="execute")))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls[0]["args"] == {}


async def test_raw_text_is_kept_only_up_to_a_bound() -> None:
    """S36"""
    async with talking(raw(stream(call('{"a":"' + "🦊" * 50_000, call_id="a", name="find")))) as talk:
        reply = await talk.say()
    assert len(reply.message.invalid_tool_calls[0]["args"] or "") < 5_000


async def test_a_truncated_call_is_not_run_and_a_good_one_beside_it_is_kept() -> None:
    """S37"""
    deltas = [
        call('{"path":"a"}', index=0, call_id="a", name="find"),
        call('{"path": "/da', index=1, call_id="b", name="delete"),
    ]
    async with talking(raw(stream(*deltas, finish="length"))) as talk:
        reply = await talk.say()
    assert [item["id"] for item in reply.message.tool_calls] == ["a"]
    assert [item["id"] for item in reply.message.invalid_tool_calls] == ["b"]


async def test_an_answer_cut_before_its_arguments_does_not_count_as_without_arguments() -> None:
    """S37: delete(path optional) with nothing yet would delete everything."""
    async with talking(raw(stream(call("", call_id="a", name="delete"), finish="length"))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls == []
    assert len(reply.message.invalid_tool_calls) == 1


arguments = st.dictionaries(
    st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=6), st.none(), st.lists(st.booleans())), max_size=3
)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Calls cut into random pieces and dealt in random order, named by index, by id, or by both."""
    meant = draw(st.lists(arguments, min_size=1, max_size=4))
    by_index, by_id = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    queues = []
    for place, value in enumerate(meant):
        text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        cuts = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=4))})
        pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
        index = place if by_index else None
        rest = f"id{place}" if by_id else None
        queues.append(
            [call(pieces[0], index=index, call_id=f"id{place}", name="find")]
            + [call(piece, index=index, call_id=rest) for piece in pieces[1:]]
        )
    order = draw(st.permutations([place for place, queue in enumerate(queues) for _ in queue]))
    first_seen = list(dict.fromkeys(order))
    return [queues[place].pop(0)["tool_calls"][0] for place in order], [meant[place] for place in first_seen]


@given(interleaved())
def test_interleaved_pieces_come_out_as_the_calls_that_went_in(case: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    """S34, for any cut and any order."""
    fragments, meant = case
    assembler = CallAssembler({"find": True})
    for fragment in fragments:
        assembler.feed(fragment)
    finished, unusable = assembler.finish(cut=False)
    assert [item.arguments for item in finished] == meant
    assert unusable == []


async def test_large_numbers_keep_their_value() -> None:
    async with talking(raw(stream(call('{"n": 123456789012345678901234567890}', call_id="a", name="find")))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls[0]["args"] == {"n": 123456789012345678901234567890}


async def test_half_a_character_in_arguments_is_unusable_and_can_be_stored() -> None:
    """S41: a lone half cannot be encoded, so it would break the store instead of the call."""
    async with talking(raw(stream(call('{"t":"\\ud83e"}', call_id="a", name="find")))) as talk:
        reply = await talk.say()
    assert reply.message.tool_calls == []
    reply.message.model_dump_json().encode()


async def test_calls_of_a_second_choice_are_not_mixed_in() -> None:
    second = {
        **chunk(),
        "choices": [{"index": 1, "delta": call('{"y":1}', call_id="b", name="look"), "finish_reason": "tool_calls"}],
    }
    body = event(second) + stream(call('{"x":1}', call_id="a", name="find"))
    async with talking(raw(body)) as talk:
        reply = await talk.say()
    assert [item["name"] for item in reply.message.tool_calls] == ["find"]
