"""Who is alive. A process registers as an owner and counts; others judge it by whether the count moves on their own clock.

No instant is compared between machines, so a clock that jumps changes nothing. A process on the same machine is also
judged by its pid and birth, so that one that was killed is known to be dead at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from checkpoints import run_rows
from checkpoints.clock import fresh_id
from checkpoints.records import Owner, Run
from checkpoints.store import Store
from checkpoints.store_errors import StoreError
from checkpoints.tx import Tx, one, stamp

LEASE_SECONDS = 15.0
BEATS_PER_LEASE = 5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process that can be found again: machine (as booted, as seen from its pid namespace), pid, and when it was born."""

    host: str
    boot_id: str
    pid: int
    birth: str


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a process of this machine, None when there is none (a zombie counts as none).

    Where the kernel does not tell births (no /proc), birth and boot id are "" and only the count judges.
    """
    host = socket.gethostname()
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a magic link, not a path
    except OSError:
        return None if Path("/proc/self/stat").exists() else ProcessIdentity(host=host, boot_id="", pid=pid, birth="")
    if fields[0] in {b"Z", b"X"}:
        return None
    return ProcessIdentity(host=host, boot_id=f"{boot} {namespace}", pid=pid, birth=fields[19].decode())


@asynccontextmanager
async def hold_owner(store: Store, *, lease_seconds: float = LEASE_SECONDS) -> AsyncIterator[str]:
    """Registers this process as an owner, keeps its count moving, and strikes it off at the end. Gives the owner id.

    End the owner's runs before leaving: a live run of an owner that is struck off counts as orphaned at once.
    """
    owner_id, identity = fresh_id(), identify(os.getpid())
    assert identity is not None
    await store.write(_register, owner_id, identity, store.clock.now())
    beating = asyncio.create_task(_beat_on(store, owner_id, lease_seconds / BEATS_PER_LEASE), name=f"beat {owner_id}")
    try:
        yield owner_id
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await store.write(_strike, owner_id)


class LeaseJudge:
    """Judges owners by looking now and then. Keep one as long as the process runs: what it has seen is what it knows.

    Args:
        store: An open store.
        lease_seconds: How long an owner's count may stand still, on this process's monotonic clock.
    """

    def __init__(self, store: Store, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._store = store
        self._lease_seconds = lease_seconds
        self._seen: dict[str, tuple[int, float]] = {}

    async def orphans(self) -> tuple[Run, ...]:
        """Live runs whose owner is dead as far as this process can tell now."""
        owners, live = await self._store.read(_owners_and_live)
        now = self._store.clock.monotonic()
        alive = {owner.owner_id for owner in owners if self._alive(owner, now)}
        self._seen = {key: seen for key, seen in self._seen.items() if key in {owner.owner_id for owner in owners}}
        return tuple(run for run in live if run.owner_id not in alive)

    async def is_dead(self, owner_id: str) -> bool:
        """True when the owner is struck off, provably gone, or has not counted for a lease while this judge looked."""
        owner = await self._store.read(_owner, owner_id)
        return owner is None or not self._alive(owner, self._store.clock.monotonic())

    def _alive(self, owner: Owner, now: float) -> bool:
        if _provably_gone(owner):
            return False
        beat, since = self._seen.get(owner.owner_id, (None, now))
        if beat != owner.beat:
            self._seen[owner.owner_id] = (owner.beat, now)
            return True
        return now - since < self._lease_seconds


def _provably_gone(owner: Owner) -> bool:
    here = identify(os.getpid())
    if here is None or not here.boot_id or here.host != owner.host:
        return False
    if here.boot_id.split()[0] != owner.boot_id.split()[0]:
        return True  # This very machine was booted again since.
    if here.boot_id != owner.boot_id:
        return False  # Another container on it: its pids mean nothing here.
    there = identify(owner.pid)
    return there is None or there.birth != owner.birth


async def _beat_on(store: Store, owner_id: str, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await store.write(_beat, owner_id, store.clock.now())
        except StoreError as error:
            # The next beat may go through; until then the runs' fences protect the threads.
            logger.warning("owner %s could not beat: %s", owner_id, error)


def _register(tx: Tx, owner_id: str, identity: ProcessIdentity, now: datetime) -> None:
    tx.execute(
        "INSERT INTO owners (owner_id, host, boot_id, pid, birth, started_at, beaten_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner_id, identity.host, identity.boot_id, identity.pid, identity.birth, stamp(now), stamp(now)),
    )


def _beat(tx: Tx, owner_id: str, now: datetime) -> None:
    tx.execute("UPDATE owners SET beat = beat + 1, beaten_at = ? WHERE owner_id = ?", (stamp(now), owner_id))


def _strike(tx: Tx, owner_id: str) -> None:
    tx.execute("DELETE FROM owners WHERE owner_id = ?", (owner_id,))


def _owner(tx: Tx, owner_id: str) -> Owner | None:
    row = one(tx.execute(f"{_SELECT} WHERE owner_id = ?", (owner_id,)))
    return None if row is None else Owner(**dict(zip(_FIELDS, row, strict=True)))


def _owners_and_live(tx: Tx) -> tuple[list[Owner], tuple[Run, ...]]:
    owners = [Owner(**dict(zip(_FIELDS, row, strict=True))) for row in tx.execute(_SELECT)]
    return owners, run_rows.list_runs(tx, [("status", "running")], 10_000)


_FIELDS = ("owner_id", "host", "boot_id", "pid", "birth", "beat")
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM owners"
