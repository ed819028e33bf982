"""A process that races another one for one thread: waits for a line on its input, acts, prints one JSON line, and again.

Started by conftest.py as `python -m tests.store.racer`. A request is a JSON object: what to do, in which store, on which
thread, with which grant. The store of the last request stays open until another one is named.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import HumanMessage

from checkpoints.errors import CheckreinError
from checkpoints.journal import EffectCall, Journal
from checkpoints.ledger import Ledger
from checkpoints.records import FENCE_KEY, ApprovalAnswer, Fence, GrantUse, NewRun
from checkpoints.saver import ThreadSaver
from checkpoints.store import Store, open_store
from tests.store.scenes import conversation, fresh


async def admit(store: Store, request: dict[str, Any]) -> str:
    grant = GrantUse(
        request_id=request.get("grant") or fresh(),
        expires_at=datetime.now(UTC) + timedelta(minutes=1),
        expected_fence=request["fence"],
        expected_checkpoint_id=request.get("checkpoint", ""),
    )
    decision = request.get("decision")
    answers = None if decision is None else [ApprovalAnswer(interrupt_id="i", decisions=[decision])]
    new = NewRun(run_id=fresh(), thread_id=request["thread"], owner_id="racer")
    run = await Ledger(store).admit(new, grant, answers)
    return run.run_id


async def adopt(store: Store, request: dict[str, Any]) -> str:
    run = await Ledger(store).adopt(request["run"], owner_id=fresh(), expected_fence=request["fence"])
    await Journal(store).enter(
        EffectCall(thread_id=request["thread"], call_id="c", run_id=run.run_id, tool="execute", digest="d"), run.fencing
    )
    return run.owner_id


async def enter(store: Store, request: dict[str, Any]) -> str:
    """Starts the effect under a fence that both processes hold: only the journal's row tells them apart."""
    fence = Fence(thread_id=request["thread"], run_id=request["run"], number=request["fence"])
    call = EffectCall(thread_id=request["thread"], call_id="c", run_id=request["run"], tool="execute", digest="d")
    return type(await Journal(store).enter(call, fence, start=True)).__name__


async def save(store: Store, request: dict[str, Any]) -> str:
    app = conversation(request["turns"]).compile(checkpointer=ThreadSaver(store))
    config = {"configurable": {"thread_id": request["thread"]}, "recursion_limit": 5000}
    if "run" in request:
        config["configurable"][FENCE_KEY] = Fence(thread_id=request["thread"], run_id=request["run"], number=request["fence"])
    out = await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    return str(len(out["messages"]))


ACTIONS = {"admit": admit, "adopt": adopt, "enter": enter, "save": save}


async def act(store: Store, request: dict[str, Any]) -> dict[str, str]:
    try:
        return {"won": await ACTIONS[request["do"]](store, request)}
    except CheckreinError as error:
        return {"lost": error.code}


async def serve(address: str) -> str:
    """Serves requests for one store; gives the request for another one that ended it, "" at the end of the input."""
    async with open_store(address) as store:
        print(json.dumps({"open": address}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            if request["do"] == "open":
                return str(request["address"])
            print(json.dumps(await act(store, request)), flush=True)
    return ""


async def main() -> None:
    line = await asyncio.to_thread(sys.stdin.readline)
    address = json.loads(line)["address"] if line else ""
    while address:
        address = await serve(address)


if __name__ == "__main__":
    asyncio.run(main())
