"""The messages channel: replaying what was stored gives the state that the run saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.errors import InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from checkpoints.messages import FEWEST, MessagesChannel, fold_messages

IDS = st.sampled_from(["a", "b", "c", "d", "e"])
MESSAGES = st.one_of(
    st.builds(HumanMessage, content=st.text(max_size=3), id=IDS),
    st.builds(AIMessage, content=st.text(max_size=3), id=IDS),
    IDS.map(lambda each: RemoveMessage(id=each)),
    st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES)),
)
WRITES = st.lists(st.one_of(MESSAGES, st.lists(MESSAGES, max_size=4)), max_size=6)


@given(WRITES, WRITES, WRITES)
def test_how_writes_are_cut_into_batches_makes_no_difference(first: list[Any], second: list[Any], third: list[Any]) -> None:
    """The law that LangGraph's replay rests on."""
    state = fold_messages([], first)
    assert fold_messages(fold_messages(state, second), third) == fold_messages(state, second + third)


@given(st.lists(WRITES, max_size=12), st.integers(0, 12))
def test_a_channel_rebuilt_from_any_snapshot_and_the_writes_after_it_has_the_same_value(
    supersteps: list[list[Any]], at: int
) -> None:
    """Replay equals state, wherever the snapshot was (S62)."""
    live = MessagesChannel().from_checkpoint(None)
    snapshot: Any = None
    for number, writes in enumerate(supersteps):
        if number == at:
            snapshot = _DeltaSnapshot(live.get())
        live.update(writes)
    rebuilt = MessagesChannel().from_checkpoint(snapshot)
    after = supersteps if snapshot is None else supersteps[at:]
    rebuilt.replay_writes([("task", "messages", write) for writes in after for write in writes])
    assert rebuilt.get() == live.get()


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(100, 1500))
def test_all_snapshots_together_are_at_most_twice_the_conversation(a_step: int, total: int) -> None:
    """Snapshot sizes double, whatever number of messages a superstep brings: storage stays linear (design promise 8)."""
    channel = MessagesChannel().from_checkpoint(None)
    stored = last = 0
    for number in range(total // a_step):
        channel.update([[AIMessage("x", id=f"{number}-{place}") for place in range(a_step)]])
        if channel.snapshot_frequency == 1:
            stored += len(channel.get())
            last = len(channel.get())
    assert stored <= 2 * total + a_step
    assert len(channel.get()) - last <= max(last, FEWEST) + a_step


def test_replacing_keeps_the_place_and_removing_an_unknown_id_does_nothing() -> None:
    state: Sequence[AnyMessage] = [HumanMessage("one", id="a"), HumanMessage("two", id="b")]
    changed = fold_messages(state, [HumanMessage("uno", id="a"), RemoveMessage(id="zzz")])
    assert [message.content for message in changed] == ["uno", "two"]
    assert [message.content for message in state] == ["one", "two"]


@pytest.mark.parametrize("bad", [None, [None], 7, [{"no": "role"}], object()])
def test_what_is_no_message_is_refused_before_it_can_be_saved(bad: Any) -> None:
    """S63: the thread stays at its last good point."""
    with pytest.raises(InvalidUpdateError):
        fold_messages([], [bad])


@given(st.lists(WRITES, max_size=8))
def test_a_copy_and_its_original_go_separate_ways(supersteps: list[list[Any]]) -> None:
    """LangGraph copies the channel for each router; neither may see what the other one took."""
    live = MessagesChannel().from_checkpoint(None)
    expected: list[AnyMessage] = []
    for writes in supersteps:
        copy = live.copy()
        copy.update([[HumanMessage("only here", id="z")]])
        copy.update(writes)
        assert copy.get() == fold_messages(fold_messages(expected, [HumanMessage("only here", id="z")]), writes)
        live.update(writes)
        expected = fold_messages(expected, writes)
        assert live.get() == expected


def test_copies_keep_the_distance_to_the_next_snapshot() -> None:
    """LangGraph copies channels with the constructor's three arguments."""
    channel = MessagesChannel().from_checkpoint(None)
    channel.update([[AIMessage("x", id=str(number)) for number in range(FEWEST)]])
    assert channel.snapshot_frequency == 1
    assert channel.copy().snapshot_frequency == 1
    assert channel == MessagesChannel()
