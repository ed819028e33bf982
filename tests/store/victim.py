"""A process that writes and says what was acknowledged, until it is killed. Started by test_crash.py."""

from __future__ import annotations

import asyncio
import sys

from langchain_core.messages import HumanMessage

from checkpoints.journal import EffectCall, Journal
from checkpoints.leases import hold_owner
from checkpoints.ledger import Ledger
from checkpoints.records import FENCE_KEY, NewEvent, Run
from checkpoints.saver import ThreadSaver
from checkpoints.store import Store, open_store
from tests.store.scenes import conversation, start


def say(*words: object) -> None:
    print(*words, flush=True)


async def live(store: Store, run: Run) -> None:
    """Events, effects and checkpoints on one thread; each line names what is on disk for certain."""
    ledger, journal = Ledger(store), Journal(store)
    app = conversation(1).compile(checkpointer=ThreadSaver(store))
    config = {"configurable": {"thread_id": run.thread_id, FENCE_KEY: run.fencing}}
    number = 0
    while True:
        number += 1
        say("event", run.run_id, await ledger.append(run.fencing, [NewEvent(kind="x")]))
        call = EffectCall(thread_id=run.thread_id, call_id=f"c{number}", run_id=run.run_id, tool="execute", digest="d")
        await journal.enter(call, run.fencing, start=True)
        say("started", run.thread_id, call.call_id)
        await journal.record(run.thread_id, call.call_id, run.fencing, {"number": number})
        say("done", run.thread_id, call.call_id)
        out = await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
        say("messages", run.thread_id, len(out["messages"]))


async def main() -> None:
    async with open_store(sys.argv[1]) as store, hold_owner(store) as owner:
        runs = [await start(Ledger(store), f"t{number}", owner) for number in range(4)]
        await asyncio.gather(*(live(store, run) for run in runs))


if __name__ == "__main__":
    asyncio.run(main())
