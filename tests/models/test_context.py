"""Compaction: against the window of the model in use, tool batches whole, never a reason for a run to die."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from nodes.models.chat_models import DEFAULT_WINDOW, ChatModels
from nodes.models.context import conversation_tokens, is_summary, plan_compaction, summary_message
from nodes.models.request import RequestWriter
from nodes.models.script import ScriptedReply
from nodes.models.script_wire import history_fault
from nodes.models.spec import ModelSpec
from tests.models.talk import talking
from tests.models.test_history import as_wire

pytestmark = pytest.mark.anyio


def work(turns: int, size: int = 400, calls: int = 2) -> list[BaseMessage]:
    messages: list[BaseMessage] = [SystemMessage("Be careful."), HumanMessage("Fix the build.")]
    for turn in range(turns):
        ids = [f"{turn}-{place}" for place in range(calls)]
        messages.append(
            AIMessage("", tool_calls=[{"name": "execute", "args": {"command": "ls"}, "id": call_id} for call_id in ids])
        )
        messages.extend(ToolMessage("x" * size, tool_call_id=call_id) for call_id in ids)
    return messages


def test_a_conversation_that_fits_is_left_alone() -> None:
    assert plan_compaction(work(5), window=100_000) is None


def test_the_newest_part_and_the_system_messages_stay() -> None:
    messages = work(100)
    plan = plan_compaction(messages, window=20_000)
    assert plan is not None
    result = plan.result("the summary")
    assert result[0] == messages[0]
    assert is_summary(result[1])
    assert result[-1] is messages[-1]
    assert conversation_tokens(result) < 20_000 * 0.4
    assert [*plan.kept[: plan.system], *plan.replaced, *plan.kept[plan.system :]] == messages


@given(st.integers(1, 60), st.integers(0, 2_000), st.integers(1, 4), st.integers(200, 20_000))
def test_tool_batches_are_never_split(turns: int, size: int, calls: int, window: int) -> None:
    plan = plan_compaction(work(turns, size, calls), window=window)
    if plan is None:
        return
    for part in (plan.replaced, plan.kept):
        ids = {call["id"] for message in part if isinstance(message, AIMessage) for call in message.tool_calls}
        assert {message.tool_call_id for message in part if isinstance(message, ToolMessage)} == ids
    sent = RequestWriter(as_wire).body({}, plan.result("s")).data
    assert b'"tool_call_id"' in sent
    assert history_fault([as_wire(message) for message in plan.result("s") if not isinstance(message, SystemMessage)]) is None


def test_a_newest_batch_larger_than_the_window_still_stays() -> None:
    messages = [*work(10), *work(1, size=400_000)[2:]]
    plan = plan_compaction(messages, window=10_000)
    assert plan is not None
    assert plan.kept[-1] is messages[-1]


def test_nothing_is_compacted_twice_for_nothing() -> None:
    messages = [SystemMessage("s"), summary_message("x" * 40_000), HumanMessage("y" * 4_000)]
    assert plan_compaction(messages, window=1_000) is None
    assert plan_compaction([HumanMessage("y" * 40_000)], window=1_000) is None


def test_reported_tokens_count_when_they_are_more_than_the_estimate() -> None:
    messages = work(20)
    assert plan_compaction(messages, window=20_000) is None
    assert plan_compaction(messages, window=20_000, known=19_000) is not None


def test_other_scripts_are_not_counted_four_characters_a_token() -> None:
    assert conversation_tokens([HumanMessage("日本語" * 100)]) >= 300
    assert conversation_tokens([HumanMessage("abcd" * 100)]) < 110


def test_images_and_blocks_are_counted() -> None:
    blocks = [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert conversation_tokens([HumanMessage(blocks)]) > 1_000  # type: ignore[arg-type]


async def test_the_summary_request_fits_the_window_and_holds_no_call() -> None:
    plan = plan_compaction(work(200, size=5_000), window=50_000)
    assert plan is not None
    request = plan.request(50_000)
    assert conversation_tokens(request) < 50_000
    async with talking(ScriptedReply(text="A summary.")) as talk:
        reply = await talk.say(request, tools=())
        assert "tools" not in talk.server.requests[0].body
    assert plan.result(reply.message.text)[plan.system].text.endswith("A summary.")


def test_the_window_is_the_specs_else_the_profiles_else_the_default() -> None:
    url = "https://api.openai.com/v1"
    models = ChatModels({})
    assert models.window(ModelSpec(model="gpt-4o", base_url=url, window=5_000)) == 5_000
    assert models.window(ModelSpec(model="gpt-4o", base_url=url)) == 128_000
    assert models.window(ModelSpec(model="no-such-model", base_url=url)) == DEFAULT_WINDOW == 262_144


def test_a_window_that_cannot_be_looked_up_is_the_default() -> None:
    assert ChatModels({}).window(ModelSpec(model="m")) == DEFAULT_WINDOW
    assert (
        ChatModels({}).window(ModelSpec(model="m", base_url="http://h/v1", parameters={"temperature": "hot"})) == DEFAULT_WINDOW
    )
