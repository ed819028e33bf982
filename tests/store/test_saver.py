"""The saver under LangGraph: durable order, fences, delta channels, other loops, and rows that somebody changed."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Annotated, Any

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import SecretStr
from typing_extensions import TypedDict

from checkpoints.ledger import Ledger
from checkpoints.packing import long_id, short_id
from checkpoints.records import FENCE_KEY, Fence
from checkpoints.run_errors import StaleFenceError, ThreadBusyError
from checkpoints.saver import ThreadSaver
from checkpoints.serializer import SecretInStateError, StrictSerializer, TypeRefusedError
from checkpoints.status import RunStatus
from checkpoints.store import Store, open_store
from checkpoints.store_errors import IntegrityError
from tests.store.scenes import conversation, fresh, start

pytestmark = pytest.mark.anyio


def config_of(thread_id: str, **configurable: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, **configurable}, "recursion_limit": 5000}


async def test_a_long_conversation_read_back_is_the_one_that_ran(store: Store) -> None:
    """Replay equals state over many snapshots; a fork from any point goes on from there (issue: delta chains)."""
    app = conversation(40).compile(checkpointer=ThreadSaver(store))
    config = config_of("t")
    out = await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    assert len(out["messages"]) == 81
    reader = conversation(40).compile(checkpointer=ThreadSaver(store))
    assert (await reader.aget_state(config)).values["messages"] == out["messages"]
    history = [state async for state in reader.aget_state_history(config)]
    for state in history[:: len(history) // 5]:
        assert state.values.get("messages", []) == out["messages"][: len(state.values.get("messages", []))]
    middle = history[len(history) // 2]
    fork = await reader.aupdate_state(middle.config, {"messages": [HumanMessage("fork")]}, as_node="tool")
    forked = (await reader.aget_state(fork)).values["messages"]
    assert forked[:-1] == middle.values["messages"]
    assert forked[-1].content == "fork"


async def test_a_step_costs_one_commit(store: Store) -> None:
    """A task's writes and the checkpoint after them share it (a few more on a machine that stutters)."""
    app = conversation(20).compile(checkpointer=ThreadSaver(store))
    before = store.stats.commits
    await app.ainvoke({"messages": [HumanMessage("go")]}, config_of("t"), durability="sync")
    assert store.stats.commits - before < 1.3 * 2 * 20


async def test_two_hundred_runs_at_once_share_commits(store: Store) -> None:
    """Fewer than 0.2 commits a step (issue), no error."""
    app = conversation(3).compile(checkpointer=ThreadSaver(store))
    before = store.stats.commits
    runs = [
        app.ainvoke({"messages": [HumanMessage("go")]}, config_of(f"t{number}"), durability="sync") for number in range(200)
    ]
    await asyncio.gather(*runs)
    steps = 200 * 3 * 2
    assert (store.stats.commits - before) / steps < 0.2
    assert store.stats.failed == 0


async def test_the_fence_reaches_every_write_also_in_subgraphs_and_no_metadata(store: Store) -> None:
    """A stale worker cannot write a checkpoint or a pending write, at any depth."""
    gate, inside = asyncio.Event(), asyncio.Event()

    class State(TypedDict):
        log: list[str]

    async def inner(state: State) -> State:
        inside.set()
        await gate.wait()
        return {"log": ["inner"]}

    child = StateGraph(State)
    child.add_node("inner", inner)
    child.add_edge(START, "inner")
    parent = StateGraph(State)
    parent.add_node("child", child.compile())
    parent.add_edge(START, "child")
    app = parent.compile(checkpointer=ThreadSaver(store))

    ledger = Ledger(store)
    run = await start(ledger, "t")
    task = asyncio.create_task(app.ainvoke({"log": []}, config_of("t", **{FENCE_KEY: run.fencing}), durability="sync"))
    await inside.wait()
    async for state in app.aget_state_history(config_of("t")):
        assert "fence" not in json.dumps(state.metadata, default=str)
    await ledger.adopt(run.run_id, owner_id="somebody", expected_fence=run.fence)
    before = await count_rows(store)
    gate.set()
    with pytest.raises(StaleFenceError):
        await task
    assert await count_rows(store) == before
    assert store.stats.refused > 0


async def count_rows(store: Store) -> list[Any]:
    return await store.read(lambda tx: tx.execute("SELECT COUNT(*) FROM checkpoints UNION ALL SELECT COUNT(*) FROM writes"))


async def test_a_writer_without_a_fence_is_welcome_only_while_no_run_is_live(store: Store) -> None:
    """LangGraph's server and ours share a thread (langgraph-facts 7), but never at once."""
    app = conversation(1).compile(checkpointer=ThreadSaver(store))
    await app.ainvoke({"messages": [HumanMessage("one")]}, config_of("t"), durability="sync")
    ledger = Ledger(store)
    run = await start(ledger, "t")
    with pytest.raises(ThreadBusyError, match=run.run_id):
        await app.ainvoke({"messages": [HumanMessage("two")]}, config_of("t"), durability="sync")
    foreign = Fence(thread_id="other", run_id=run.run_id, number=run.fence)
    with pytest.raises(ThreadBusyError):
        await app.ainvoke({"messages": [HumanMessage("two")]}, config_of("t", **{FENCE_KEY: foreign}), durability="sync")
    await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    with pytest.raises(StaleFenceError):
        await app.ainvoke({"messages": [HumanMessage("2")]}, config_of("t", **{FENCE_KEY: run.fencing}), durability="sync")
    out = await app.ainvoke({"messages": [HumanMessage("three")]}, config_of("t"), durability="sync")
    assert [message.content for message in out["messages"] if isinstance(message, HumanMessage)] == ["one", "three"]


async def test_a_history_that_is_held_open_holds_up_no_write(store: Store) -> None:
    """langgraph-facts 6: the stock saver blocks every write while alist is open."""
    saver = ThreadSaver(store)
    app = conversation(5).compile(checkpointer=saver)
    await app.ainvoke({"messages": [HumanMessage("go")]}, config_of("t"), durability="sync")
    listing = saver.alist(config_of("t"))
    await anext(listing)
    await asyncio.wait_for(app.ainvoke({"messages": [HumanMessage("more")]}, config_of("u"), durability="sync"), timeout=30)
    rest = [found async for found in listing]
    assert len(rest) == 11


async def test_pauses_in_parallel_are_listed_and_answered_by_id_from_another_saver(store: Store) -> None:
    """S68: the same ids in stream, state and store."""

    class State(TypedDict):
        log: Annotated[list[str], lambda left, right: left + right]

    async def ask(state: State) -> Any:
        return {"log": [interrupt({"n": 1})]}

    async def ask_too(state: State) -> Any:
        return {"log": [interrupt({"n": 2})]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("ask_too", ask_too)
    graph.add_edge(START, "ask")
    graph.add_edge(START, "ask_too")
    graph.add_edge("ask", END)
    streamed = await graph.compile(checkpointer=ThreadSaver(store)).ainvoke({"log": []}, config_of("t"), durability="sync")
    app = graph.compile(checkpointer=ThreadSaver(store))
    state = await app.aget_state(config_of("t"))
    ids = [each.id for each in state.interrupts]
    assert ids == [each.id for each in streamed["__interrupt__"]]
    answers = {ids[0]: "first", ids[1]: "second"}
    out = await app.ainvoke(Command(resume=answers), config_of("t"), durability="sync")
    assert sorted(out["log"]) == ["first", "second"]


async def test_the_saver_works_in_another_loop_and_from_a_thread_without_one(store: Store) -> None:
    """LangGraph's server opens it in a loop of its own."""
    saver = ThreadSaver(store)
    app = conversation(2).compile(checkpointer=saver)

    def elsewhere() -> None:
        asyncio.run(app.ainvoke({"messages": [HumanMessage("go")]}, config_of("other"), durability="sync"))

    await asyncio.to_thread(elsewhere)
    here = await saver.aget_tuple(config_of("other"))
    assert here is not None
    there = await asyncio.to_thread(saver.get_tuple, config_of("other"))
    assert there == here
    listed = await asyncio.to_thread(lambda: [*saver.list(config_of("other"))])
    assert listed[0] == here
    assert threading.active_count() < 20


async def test_a_secret_is_refused_at_any_depth_and_nothing_is_saved(store: Store) -> None:
    """S65."""

    class State(TypedDict):
        value: Any

    async def leak(state: State) -> State:
        return {"value": {"deep": [{"key": SecretStr("hunter2")}]}}

    graph = StateGraph(State)
    graph.add_node("leak", leak)
    graph.add_edge(START, "leak")
    app = graph.compile(checkpointer=ThreadSaver(store))
    with pytest.raises(SecretInStateError):
        await app.ainvoke({"value": 1}, config_of("t"), durability="sync")
    assert (await app.aget_state(config_of("t"))).values == {"value": 1}


async def test_a_secret_in_the_config_reaches_no_row(tmp_path: Path) -> None:
    """S65: a grep of the file finds none."""
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        app = conversation(2).compile(checkpointer=ThreadSaver(store))
        config = config_of("t", __api_key=SecretStr("hunter2"))
        await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
        await store.compact()
    assert b"hunter2" not in path.read_bytes()


async def put_two_threads(store: Store) -> ThreadSaver:
    saver = ThreadSaver(store)
    app = conversation(2).compile(checkpointer=saver)
    for thread_id in ("t", "u"):
        await app.ainvoke({"messages": [HumanMessage("go")]}, config_of(thread_id), durability="sync")
    return saver


@pytest.mark.parametrize("table", ["checkpoints", "writes"])
async def test_a_flipped_bit_anywhere_in_a_row_is_refused(store: Store, table: str) -> None:
    """S66."""
    saver = await put_two_threads(store)

    def flip(tx: Any, at: int) -> None:
        seqs = tx.execute(f"SELECT seq, body FROM {table} ORDER BY seq")
        for seq, body in seqs:
            broken = bytearray(body)
            broken[at % len(broken)] ^= 1
            tx.execute(f"UPDATE {table} SET body = ? WHERE seq = ?", (bytes(broken), seq))

    for at in (0, 7, 9, 40):
        await store.write(flip, at)
        with pytest.raises(IntegrityError):
            _ = [found async for found in saver.alist(config_of("t"))]
        await store.write(flip, at)
    assert [found async for found in saver.alist(config_of("t"))]


async def test_a_row_moved_from_another_thread_is_refused(store: Store) -> None:
    """S66."""
    saver = await put_two_threads(store)

    def move(tx: Any) -> None:
        [(mine,)] = tx.execute("SELECT l.lane FROM lanes l JOIN threads t ON t.thread_no = l.thread_no WHERE t.thread_id='t'")
        [(body,)] = tx.execute("SELECT c.body FROM checkpoints c JOIN lanes l ON l.head = c.seq WHERE l.lane <> ?", (mine,))
        tx.execute("UPDATE checkpoints SET body = ? WHERE seq = (SELECT head FROM lanes WHERE lane = ?)", (body, mine))

    await store.write(move)
    with pytest.raises(IntegrityError) as refused:
        await saver.aget_tuple(config_of("t"))
    assert refused.value.thread_id == "t"
    assert await saver.aget_tuple(config_of("u"))


async def test_a_row_that_names_a_callable_is_refused_and_nothing_is_imported(store: Store, tmp_path: Path) -> None:
    """S66: even with a seal that fits, since the writer may hold the key."""
    trap = tmp_path / "trap"
    payload = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {trap}"))))

    class Forging(StrictSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return ("msgpack", payload) if obj == "forge" else super().dumps_typed(obj)

    class State(TypedDict):
        value: str

    async def node(state: State) -> State:
        return {"value": "forge"}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    await graph.compile(checkpointer=ThreadSaver(store, serde=Forging())).ainvoke(
        {"value": "x"}, config_of("t"), durability="sync"
    )
    with pytest.raises(IntegrityError, match=r"os\.system"):
        await ThreadSaver(store).aget_tuple(config_of("t"))
    assert not trap.exists()


def test_a_type_that_this_version_no_longer_has_is_an_error_and_no_dict() -> None:
    """S64: the stock serializer gives a bare dict and the run goes on wrong."""
    serde = StrictSerializer([("tests.store.nowhere", "Gone")])
    stored = ormsgpack.packb(ormsgpack.Ext(2, ormsgpack.packb(("tests.store.nowhere", "Gone", {"a": 1}))))
    with pytest.raises(TypeRefusedError) as refused:
        serde.loads_typed(("msgpack", stored))
    assert refused.value.missing
    for kind in ("pickle", "json"):
        with pytest.raises(TypeRefusedError):
            serde.loads_typed((kind, b"x"))


@pytest.mark.parametrize("text", ["", "a", "x" * 15, "y" * 14, "z" * 16, fresh(), "not-a-uuid", "ä" * 7, fresh().upper()])
def test_ids_come_back_as_they_went_in(text: str) -> None:
    assert long_id(short_id(text)) == text


async def test_a_write_that_is_lost_fails_the_next_checkpoint_of_its_thread_only(store: Store) -> None:
    """A pending write is answered when queued; its failure is not forgotten."""
    saver = ThreadSaver(store)
    app = conversation(1).compile(checkpointer=saver)
    await app.ainvoke({"messages": [HumanMessage("go")]}, config_of("t"), durability="sync")

    def fail(tx: Any) -> None:
        raise IntegrityError("test", "t", "made to fail")

    store.post("t", fail)
    await app.ainvoke({"messages": [HumanMessage("go")]}, config_of("u"), durability="sync")
    with pytest.raises(IntegrityError, match="made to fail"):
        await app.ainvoke({"messages": [HumanMessage("go")]}, config_of("t"), durability="sync")
    await app.ainvoke({"messages": [HumanMessage("go")]}, config_of("t"), durability="sync")
