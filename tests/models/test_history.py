"""The sent history: unique ids, every call answered next to it, whatever an old thread holds. Judged by a strict server."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from nodes.models.errors import UnsendableError
from nodes.models.history import NO_RESULT, sound
from nodes.models.request import RequestWriter
from nodes.models.script import ScriptedCall, ScriptedReply
from nodes.models.script_wire import history_fault
from tests.models.talk import talking

pytestmark = pytest.mark.anyio


def asks(*ids: str, broken: tuple[str, ...] = ()) -> AIMessage:
    return AIMessage(
        "",
        tool_calls=[{"name": "find", "args": {"path": call_id}, "id": call_id} for call_id in ids],
        invalid_tool_calls=[{"name": "find", "args": '{"path', "id": call_id, "error": "cut"} for call_id in broken],
    )


def answers(call_id: str, text: str = "found") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


HISTORIES: dict[str, list[BaseMessage]] = {
    "sound": [HumanMessage("a"), asks("x"), answers("x"), HumanMessage("b")],
    "one id in two turns": [
        HumanMessage("a"),
        asks("search:0"),
        answers("search:0", "1"),
        asks("search:0"),
        answers("search:0", "2"),
    ],
    "one id twice in a message": [HumanMessage("a"), asks("x", "x"), answers("x", "1"), answers("x", "2")],
    "empty ids": [HumanMessage("a"), asks("", ""), answers("", "1"), answers("", "2")],
    "no answer": [HumanMessage("a"), asks("x", "y"), answers("y"), HumanMessage("hello")],
    "answer without a call": [HumanMessage("a"), answers("ghost"), HumanMessage("b")],
    "two answers": [HumanMessage("a"), asks("x"), answers("x"), answers("x", "again")],
    "answer not next to its call": [HumanMessage("a"), asks("x"), HumanMessage("wait"), answers("x")],
    "an unusable call": [HumanMessage("a"), asks("x", broken=("y",)), answers("x"), answers("y", "not JSON")],
    "an assistant message that says nothing": [HumanMessage("a"), AIMessage(""), HumanMessage("b")],
    "an interrupted answer": [HumanMessage("a"), AIMessage("half", response_metadata={"interrupted": True}), HumanMessage("b")],
}


@pytest.mark.parametrize("name", HISTORIES)
async def test_a_strict_server_accepts_what_is_sent(name: str) -> None:
    """S35: old threads load and go on, whatever ids they hold."""
    stored = HISTORIES[name]
    before = [message.model_dump() for message in stored]
    async with talking(ScriptedReply(text="fine"), strict=True) as talk:
        await talk.say(stored)
    assert [message.model_dump() for message in stored] == before


async def test_answers_follow_their_own_call_when_an_id_repeats() -> None:
    """S35"""
    async with talking(ScriptedReply(text="fine")) as talk:
        await talk.say(HISTORIES["one id in two turns"])
    sent = talk.server.requests[0].body["messages"]
    first, second = sent[1]["tool_calls"][0]["id"], sent[3]["tool_calls"][0]["id"]
    assert first != second
    assert [(message["tool_call_id"], message["content"]) for message in sent if message["role"] == "tool"] == [
        (first, "1"),
        (second, "2"),
    ]


async def test_a_call_without_an_answer_gets_one_that_says_so() -> None:
    async with talking(ScriptedReply(text="fine")) as talk:
        await talk.say(HISTORIES["no answer"])
    assert [message["content"] for message in talk.server.requests[0].body["messages"][2:4]] == [NO_RESULT, "found"]


async def test_a_new_call_never_gets_an_id_that_the_conversation_already_uses() -> None:
    """S35: where ids are unique only within one response, the stored thread is sound from the start."""
    repeats = ScriptedReply(calls=(ScriptedCall(name="find", arguments={}, id="search:0"),))
    async with talking(repeats) as talk:
        reply = await talk.say([HumanMessage("a"), asks("search:0"), answers("search:0")])
    assert reply.message.tool_calls[0]["id"] not in {"search:0", "", None}


async def test_an_unusable_call_is_sent_with_arguments_that_are_json() -> None:
    """Servers that parse the history's arguments answer 400 for ever to one broken text."""
    async with talking(ScriptedReply(text="fine"), strict=True) as talk:
        await talk.say(HISTORIES["an unusable call"])
    calls = talk.server.requests[0].body["messages"][1]["tool_calls"]
    assert [json.loads(item["function"]["arguments"]) for item in calls] == [{"path": "x"}, {}]


message = st.one_of(
    st.builds(HumanMessage, st.just("hi")),
    st.builds(asks, st.sampled_from(["x", "y", ""])),
    st.builds(asks, st.sampled_from(["x", "y"]), st.sampled_from(["x", "z"])),
    st.builds(answers, st.sampled_from(["x", "y", "z", ""])),
)


@given(st.lists(message, max_size=14))
def test_any_history_becomes_sound_and_loses_no_words_of_a_person(messages: list[BaseMessage]) -> None:
    writer = RequestWriter(as_wire)
    sent = json.loads(writer.body({"model": "m"}, messages).data)["messages"]
    assert history_fault(sent) is None
    assert sum(item["role"] == "user" for item in sent) == sum(isinstance(item, HumanMessage) for item in messages)
    assert sound(sound(messages)) == sound(messages)


def as_wire(item: BaseMessage) -> dict[str, Any]:
    """The fields that the pairing rules look at."""
    if isinstance(item, AIMessage):
        calls = [
            {"id": call["id"], "type": "function", "function": {"name": "find", "arguments": "{}"}} for call in item.tool_calls
        ]
        return {"role": "assistant", "content": item.content, "tool_calls": calls}
    if isinstance(item, ToolMessage):
        return {"role": "tool", "tool_call_id": item.tool_call_id, "content": item.content}
    return {"role": "user", "content": item.content}


def test_a_message_is_written_once_and_forgotten_with_its_message() -> None:
    written: list[BaseMessage] = []

    def convert(item: BaseMessage) -> dict[str, Any]:
        written.append(item)
        return as_wire(item)

    writer = RequestWriter(convert)
    messages = [HumanMessage(f"message {place}") for place in range(50)]
    first = writer.body({"model": "m"}, messages)
    messages.append(HumanMessage("one more"))
    second = writer.body({"model": "m"}, messages)
    assert len(written) == 51
    assert second.data.startswith(first.data[:-2])
    written.clear()
    messages.clear()
    gc.collect()
    assert len(writer) == 0


def test_a_message_whose_content_was_replaced_is_written_again() -> None:
    writer = RequestWriter(as_wire)
    item = HumanMessage("before")
    writer.body({}, [item])
    item.content = "after"
    assert json.loads(writer.body({}, [item]).data)["messages"] == [{"role": "user", "content": "after"}]


async def test_half_characters_in_a_history_are_sent_as_marks() -> None:
    async with talking(ScriptedReply(text="fine")) as talk:
        await talk.say([HumanMessage("a\ud83eb")])
    assert talk.server.requests[0].body["messages"][0]["content"] == "a\ufffdb"


async def test_what_cannot_be_written_is_named_and_nothing_is_sent() -> None:
    async with talking(ScriptedReply(text="fine")) as talk:
        with pytest.raises(UnsendableError):
            await talk.say([SystemMessage("s"), HumanMessage([{"type": "image_url", "image_url": {"url": b"raw"}}])])  # type: ignore[dict-item]
    assert talk.server.requests == []


async def test_a_task_of_five_megabytes_is_sent_whole() -> None:
    async with talking(ScriptedReply(text="fine")) as talk:
        await talk.say("x" * 5_000_000)
    assert len(talk.server.requests[0].body["messages"][0]["content"]) == 5_000_000
