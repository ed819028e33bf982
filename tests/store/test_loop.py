"""The event loop is never blocked by the store (langgraph-facts 7: the development server refuses blocking calls)."""

from __future__ import annotations

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import HumanMessage

from checkpoints.approvals import Approvals
from checkpoints.journal import EffectCall, Journal
from checkpoints.leases import LeaseJudge
from checkpoints.ledger import Ledger
from checkpoints.records import FENCE_KEY, NewEvent
from checkpoints.saver import ThreadSaver
from checkpoints.status import RunStatus
from checkpoints.store import Store, open_store
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
