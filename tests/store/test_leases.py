"""Who is alive: judged by a count that moves, and by the kernel on the same machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpoints.leases import LeaseJudge, hold_owner, identify
from checkpoints.ledger import Ledger
from checkpoints.status import RunStatus
from checkpoints.store import Store, open_store
from tests.store.scenes import start

pytestmark = pytest.mark.anyio


class Watch:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)
        self.seconds = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds


async def make_foreign(store: Store, owner_id: str) -> None:
    """Moves an owner to another machine, so that only its count can judge it."""
    await store.write(lambda tx: tx.execute("UPDATE owners SET host = 'elsewhere' WHERE owner_id = ?", (owner_id,)))


async def beat(store: Store, owner_id: str) -> None:
    await store.write(lambda tx: tx.execute("UPDATE owners SET beat = beat + 1 WHERE owner_id = ?", (owner_id,)))


async def test_an_owner_elsewhere_is_dead_when_its_count_stood_still_for_a_lease(tmp_path: Path) -> None:
    clock = Watch()
    async with open_store(tmp_path / "store.db", clock=clock) as store, hold_owner(store, lease_seconds=1e6) as owner:
        run = await start(Ledger(store), "t", owner)
        await make_foreign(store, owner)
        judge = LeaseJudge(store, lease_seconds=10)
        assert await judge.orphans() == ()
        clock.seconds += 9
        assert await judge.orphans() == ()
        await beat(store, owner)
        clock.seconds += 9
        assert await judge.orphans() == ()
        clock.seconds += 9.9
        assert await judge.orphans() == ()
        clock.seconds += 0.2
        assert [orphan.run_id for orphan in await judge.orphans()] == [run.run_id]
        assert await judge.is_dead(owner)


async def test_a_clock_that_jumps_by_days_kills_and_saves_nobody(tmp_path: Path) -> None:
    """Leases survive a clock that jumps (issue: fencing)."""
    clock = Watch()
    async with open_store(tmp_path / "store.db", clock=clock) as store, hold_owner(store, lease_seconds=1e6) as owner:
        await start(Ledger(store), "t", owner)
        await make_foreign(store, owner)
        judge = LeaseJudge(store, lease_seconds=10)
        assert await judge.orphans() == ()
        for jump in (timedelta(days=400), timedelta(days=-800)):
            clock.wall += jump
            assert await judge.orphans() == ()
        clock.seconds += 11
        assert len(await judge.orphans()) == 1


async def test_a_live_owner_beats_and_one_that_leaves_is_struck_off(store: Store) -> None:
    async with hold_owner(store, lease_seconds=0.05) as owner:
        seen = await beats(store, owner)
        async with asyncio.timeout(30):
            while await beats(store, owner) < seen + 2:
                await asyncio.sleep(0.01)
        ledger = Ledger(store)
        run = await start(ledger, "t", owner)
        judge = LeaseJudge(store)
        assert await judge.orphans() == ()
    assert await judge.is_dead(owner)
    assert [orphan.run_id for orphan in await judge.orphans()] == [run.run_id]
    await ledger.finish(run.run_id, run.fence, RunStatus.FAILED, {})


async def beats(store: Store, owner_id: str) -> int:
    return await store.read(lambda tx: tx.execute("SELECT beat FROM owners WHERE owner_id = ?", (owner_id,))[0][0])


OWNER = """
import asyncio, sys
from checkpoints.leases import hold_owner
from checkpoints.store import open_store

async def main():
    async with open_store(sys.argv[1]) as store, hold_owner(store) as owner:
        print(owner, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_an_owner_of_this_machine_that_was_killed_is_known_to_be_dead_at_once(address: str) -> None:
    """No lease to wait for: pid and birth say so."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, address, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        owner = (await process.stdout.readline()).decode().strip()
        async with open_store(address) as store:
            judge = LeaseJudge(store, lease_seconds=1e6)
            assert not await judge.is_dead(owner)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            assert await judge.is_dead(owner)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_an_identity_tells_a_reused_pid_apart() -> None:
    mine, first = identify(os.getpid()), identify(1)
    assert mine is not None
    assert first is not None
    assert mine.boot_id == first.boot_id
    assert mine.birth != first.birth
    assert identify(2**22 + 1) is None
