"""Makes the stored fixture of a released store version: `python -m tests.store.released`.

Run once for each release that has a new version, and keep the file for ever: test_upgrade.py opens every one of them.
"""

from __future__ import annotations

import asyncio
import gzip
import tempfile
from pathlib import Path

from langchain_core.messages import HumanMessage

from checkpoints.approvals import Rules
from checkpoints.journal import EffectCall, Journal
from checkpoints.ledger import Ledger
from checkpoints.migrations import known_version
from checkpoints.portable import export_thread
from checkpoints.records import FENCE_KEY, NewApproval, NewEvent
from checkpoints.saver import ThreadSaver
from checkpoints.sessions import SandboxSessions, SessionStatus
from checkpoints.status import RunStatus
from checkpoints.store import Store, open_store
from tests.store.scenes import pausing, start

FOLDER = Path(__file__).parent / "fixtures"
THREAD = "5f0c2d3e-6a1b-4c8d-9e7f-001122334455"


async def fill(store: Store) -> None:
    """A thread that talked for fifty turns and waits for a person, with an effect that nobody knows the end of."""
    ledger = Ledger(store)
    run = await start(ledger, THREAD, title="Tidy the shed", graph_version="1")
    await ledger.append(run.fencing, [NewEvent(kind="note", payload={"text": "grüß"})])
    call = EffectCall(thread_id=THREAD, call_id="call-1", run_id=run.run_id, tool="execute", digest="d")
    await Journal(store).enter(call, run.fencing, start=True)
    app = pausing().compile(checkpointer=ThreadSaver(store))
    config = {"configurable": {"thread_id": THREAD, FENCE_KEY: run.fencing}, "recursion_limit": 500}
    await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    state = await app.aget_state({"configurable": {"thread_id": THREAD}})
    checkpoint_id = state.config["configurable"]["checkpoint_id"]
    pending = [NewApproval(interrupt_id=each.id, checkpoint_id=checkpoint_id, value=each.value) for each in state.interrupts]
    await ledger.finish(run.run_id, run.fence, RunStatus.AWAITING_INPUT, {}, pending)
    await Rules(store).allow("execute", {"prefix": "ls"})
    await SandboxSessions(store).touch("key", "/w", SessionStatus.IDLE)


async def main() -> None:
    version = known_version("sqlite")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        async with open_store(path) as store:
            await fill(store)
            await export_thread(store, THREAD, FOLDER / f"thread-{version}.checkrein")
            await store.compact()
        FOLDER.joinpath(f"store-{version}.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    asyncio.run(main())
