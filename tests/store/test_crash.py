"""A process is killed while it writes: everything it acknowledged is there, and what it held is taken over."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict

import pytest

from checkpoints.journal import Journal
from checkpoints.leases import LeaseJudge
from checkpoints.ledger import Ledger
from checkpoints.records import NewEvent
from checkpoints.run_errors import StaleFenceError
from checkpoints.saver import ThreadSaver
from checkpoints.status import EffectStatus
from checkpoints.store import open_store
from tests.store.scenes import conversation

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", range(2))
async def test_what_was_acknowledged_before_a_kill_is_there_after_it(address: str, number: int) -> None:
    """Promise 3, performance G11: zero acknowledged writes lost, at moments drawn by chance."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.store.victim", address, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    said: list[list[str]] = []
    enough = random.randint(5, 120)
    async with asyncio.timeout(60):
        while len(said) < enough:
            said.append((await process.stdout.readline()).decode().split())
    process.kill()
    said += [line.decode().split() for line in (await process.stdout.read()).splitlines(keepends=True) if b"\n" in line]
    await process.wait()

    last: dict[tuple[str, str], int] = {}
    calls: dict[str, dict[str, str]] = defaultdict(dict)
    for kind, where, what in said:
        if kind in {"started", "done"}:
            calls[where][what] = kind
        else:
            last[kind, where] = int(what)

    async with open_store(address) as store:
        ledger, journal = Ledger(store), Journal(store)
        app = conversation(1).compile(checkpointer=ThreadSaver(store))
        orphans = await LeaseJudge(store, lease_seconds=1e6).orphans()
        assert len(orphans) == 4
        for orphan in orphans:
            events = (await ledger.events(orphan.run_id, limit=100_000)).events
            assert [event.seq for event in events] == [*range(1, len(events) + 1)]
            assert len(events) >= last.get(("event", orphan.run_id), 1)
            state = await app.aget_state({"configurable": {"thread_id": orphan.thread_id}})
            assert len(state.values.get("messages", [])) >= last.get(("messages", orphan.thread_id), 0)
            effects = {effect.call_id: effect.status for effect in await journal.effects(orphan.thread_id)}
            for call_id, kind in calls[orphan.thread_id].items():
                assert effects[call_id] is EffectStatus.DONE or kind == "started"
            heir = await ledger.adopt(orphan.run_id, owner_id="heir", expected_fence=orphan.fence)
            with pytest.raises(StaleFenceError):
                await ledger.append(orphan.fencing, [NewEvent(kind="late")])
            assert await ledger.append(heir.fencing, [NewEvent(kind="on")]) == len(events) + 2
