"""Ending what a dead runtime left, from what was written down about it.

The guard ends its scope by itself when the runtime dies, so there is nothing to do as a rule. This covers the rest: a guard
that still works at it, and processes whose guard was killed. A number alone is never trusted: boot, process id and start time
must agree, and signals go through a pidfd opened before the start time is compared.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from dataclasses import dataclass

from nodes.processes.forkserver import tree
from nodes.processes.forkserver.system import LINUX
from nodes.processes.verdict import Identity

TAG = "CHECKREIN_SCOPE"
"""The environment variable that carries a scope's tag."""

PATIENCE = 5.0
_SWEEPS = 20
_LOOK = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found.

    Attributes:
        gone: True when no process of the scope can be found any more.
        killed: Processes that had to be killed here.
        guard_was_alive: Whether the scope's guard was still at work.
    """

    gone: bool
    killed: int
    guard_was_alive: bool


async def stop_recorded(identity: Identity) -> Recovered:
    """Makes sure that nothing of a recorded scope lives, in any process, after any crash.

    Takes up to 5 s for a guard that is still killing. Cancelling it leaves a thread that ends by itself.
    """
    return await asyncio.to_thread(end_recorded, identity)


def end_recorded(identity: Identity, patience: float = PATIENCE) -> Recovered:
    """The blocking form of `stop_recorded`; `patience` is how many seconds a live guard gets to do it itself."""
    if identity.boot != tree.boot_id():
        return Recovered(gone=True, killed=0, guard_was_alive=False)
    was_alive, ended = _end_guard(identity, patience)
    killed, left = sweep_tag(identity.tag)
    killed += _signal_exact(identity.main, identity.main_birth, signal.SIGKILL)
    return Recovered(gone=ended and not left, killed=killed, guard_was_alive=was_alive)


def _end_guard(identity: Identity, patience: float) -> tuple[bool, bool]:
    exact = (identity.guard, identity.guard_birth)
    if not _signal_exact(*exact, signal.SIGUSR1):
        return False, not _lives(*exact)
    if _ended(*exact, patience):
        return True, True
    _signal_exact(*exact, signal.SIGKILL)
    return True, _ended(*exact, PATIENCE)


def _lives(pid: int, birth: int) -> bool:
    stat = tree.stat_of(pid) if pid > 0 else None
    return stat is not None and stat.birth == birth and stat.alive


def _signal_exact(pid: int, birth: int, number: signal.Signals) -> bool:
    """Signals exactly this process. False when it is gone, its number belongs to another, or it is not ours to signal."""
    handle = tree.open_process(pid) if pid > 0 else None
    try:
        if not _lives(pid, birth):
            return False
        if handle is None:
            os.kill(pid, number)  # no pidfds here (macOS): the start time was right a moment ago
        else:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def _ended(pid: int, birth: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while _lives(pid, birth):
        if time.monotonic() >= end:
            return False
        _pause()
    return True


def _pause() -> None:
    select.select([], [], [], _LOOK)


def sweep_tag(tag: str) -> tuple[int, bool]:
    """Kills every process that carries the tag. Answers how many, and whether some are left.

    Best effort by nature: a process may have dropped its environment. The guards' proof does not rest on it.
    """
    needle = f"{TAG}={tag}".encode()
    killed = 0
    if not LINUX:
        return killed, False
    for _ in range(_SWEEPS):
        carriers = [(pid, stat.birth) for pid, stat in _processes() if _carries(pid, needle)]
        if not carriers:
            return killed, False
        killed += sum(_signal_exact(pid, birth, signal.SIGKILL) for pid, birth in carriers)
        _pause()
    return killed, True


def _processes() -> list[tuple[int, tree.Stat]]:
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [(pid, stat) for pid in pids if (stat := tree.stat_of(pid)) and stat.alive]


def _carries(pid: int, needle: bytes) -> bool:
    return needle in tree.read_small(f"/proc/{pid}/environ").split(b"\0")
