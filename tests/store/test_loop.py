"""The event loop is never blocked by the store (langgraph-facts 7: the development server refuses blocking calls)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import HumanMessage

from checkpoints.approvals import Approvals
from checkpoints.backends import backend_for
from checkpoints.clock import SystemClock
from checkpoints.journal import EffectCall, Journal
from checkpoints.leases import LeaseJudge
from checkpoints.ledger import Ledger
from checkpoints.records import FENCE_KEY, NewEvent
from checkpoints.saver import ThreadSaver
from checkpoints.status import RunStatus
from checkpoints.store import Store, open_store
from checkpoints.store_errors import StoreClosedError
from checkpoints.tickets import Ticket
from tests.store.scenes import conversation, start

pytestmark = pytest.mark.anyio


async def one_of_everything(store: Store) -> None:
    ledger = Ledger(store)
    run = await start(ledger, "t")
    await ledger.append(run.fencing, [NewEvent(kind="x")])
    call = EffectCall(thread_id="t", call_id="c", run_id=run.run_id, tool="execute", digest="d")
    await Journal(store).enter(call, run.fencing, start=True)
    saver = ThreadSaver(store)
    app = conversation(3).compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t", FENCE_KEY: run.fencing}}
    await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    _ = [state async for state in app.aget_state_history({"configurable": {"thread_id": "t"}})]
    await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    _ = [event async for event in ledger.follow(run.run_id)]
    await Approvals(store).inbox()
    await LeaseJudge(store).orphans()
    await saver.aprune(["t"])
    await store.compact()


async def test_nothing_that_the_store_does_blocks_the_loop(address: str) -> None:
    """Opening and closing included."""
    async with open_store(address) as store:
        await one_of_everything(store)  # Imports and first connections, which may block once, are not the point.
    with blockbuster_ctx() as guard:
        for function in ("os.stat", "io.TextIOWrapper.read"):
            if function in guard.functions:
                guard.functions[function].deactivate()
        async with open_store(address) as store:
            run = await Ledger(store).runs()
            assert run
            await one_of_everything(store)


async def hold_open(address: str, opened: asyncio.Event | None = None) -> None:
    async with open_store(address):
        if opened is not None:
            opened.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("rounds", range(3))
def test_a_loop_that_ends_at_any_moment_of_opening_and_closing_leaves_no_thread(tmp_path: Path, rounds: int) -> None:
    """`asyncio.run` cancels every task at its end, also those that others wait for."""

    async def scene() -> None:
        tasks = [asyncio.create_task(hold_open(str(tmp_path / f"{number}.db"))) for number in range(4)]
        for _ in range(rounds * 3):
            await asyncio.sleep(0.002)
        tasks[0].cancel()
        tasks[0].cancel()

    before = threading.active_count()
    asyncio.run(scene())
    assert threading.active_count() == before


async def test_whoever_comes_after_the_writer_ended_is_told_and_does_not_wait(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db") as store:
        writer = store._writer
    late = Ticket(lambda tx: None, None)
    writer.put(late)
    with pytest.raises(StoreClosedError):
        late.block()


def test_writes_of_a_loop_that_ended_are_not_lost_and_hold_up_no_other_loop(tmp_path: Path) -> None:
    """A lazy wake-up that died with its loop is no reason for the next loop to sleep."""
    path = tmp_path / "store.db"

    async def insert(name: str, *, wait: bool) -> None:
        store.post("t", lambda tx: tx.execute("INSERT INTO store_info VALUES (?, '')", (name,)))
        if wait:
            async with asyncio.timeout(30):
                while not store._writer.idle:
                    await asyncio.sleep(0.01)

    store = Store(backend_for(path, busy_seconds=1), clock=SystemClock(), redact=str, readers=1)
    store.start()
    try:
        asyncio.run(insert("first", wait=False))
        asyncio.run(insert("second", wait=True))
        names = store.read_blocking(lambda tx: tx.execute("SELECT name FROM store_info WHERE value = '' ORDER BY name"))
        assert names == [("first",), ("second",)]
    finally:
        store.stop()
