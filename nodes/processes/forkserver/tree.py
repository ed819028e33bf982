"""Who descends from whom, and the loop that ends only when the kernel says that nobody is left."""

from __future__ import annotations

import functools
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from nodes.processes.forkserver import darwin
from nodes.processes.forkserver.system import LINUX

KILL_BUDGET = 5.0
"""Seconds after which the loop gives up and says so: a process in uninterruptible sleep dies when the kernel lets it."""

_REAP_PATIENCE = 0.002
"""Seconds between a pass of signals and the next one while something still lives."""


class Stat(NamedTuple):
    """What one process says of itself: state letter, parent, and start in the kernel's own unit (Linux: ticks since boot)."""

    state: str
    parent: int
    birth: int

    @property
    def alive(self) -> bool:
        """Whether it can still run code; a zombie cannot."""
        return self.state not in "ZX"


def read_small(path: str) -> bytes:
    """A file of /proc, whole; empty when the process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def stat_of(pid: int) -> Stat | None:
    """The process's own line, or None when there is no such process."""
    if not LINUX:
        found = darwin.info(pid)
        return Stat("Z" if found.zombie else "R", found.parent, found.birth) if found else None
    text = read_small(f"/proc/{pid}/stat")
    close = text.rfind(b")")  # the name before it may hold spaces and brackets
    if close < 0:
        return None
    fields = text[close + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


@functools.cache
def boot_id() -> str:
    """Which boot of this machine it is, so that a pid written down before a reboot is not taken for a live one."""
    return read_small("/proc/sys/kernel/random/boot_id").decode().strip()


def _entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return [entry.name for entry in found if entry.name.isdigit()]
    except OSError:
        return []


def children_from_files(pid: int) -> list[int]:
    """Direct children, from the kernel's per-thread lists (CONFIG_PROC_CHILDREN). Empty when the process is gone."""
    found: list[int] = []
    for thread in _entries(f"/proc/{pid}/task"):
        found += map(int, read_small(f"/proc/{pid}/task/{thread}/children").split())
    return found


def children_from_scan(pid: int) -> list[int]:
    """Direct children, by reading the parent of every process: for kernels without the per-thread lists."""
    return [child for child in map(int, _entries("/proc")) if (stat := stat_of(child)) and stat.parent == pid]


Lister = Callable[[int], list[int]]


def choose_lister() -> Lister:
    """The fastest way that this kernel offers to list children."""
    if not LINUX:
        return darwin.children
    me = os.getpid()
    return children_from_files if os.access(f"/proc/{me}/task/{me}/children", os.R_OK) else children_from_scan


def open_process(pid: int) -> int | None:
    """A pidfd, which names this very process even after its number is given to another; None when there is none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None


def descendants(root: int, lister: Lister, keep: Collection[int] = ()) -> Iterator[tuple[int, int]]:
    """Pairs of parent and child, parents first; those in `keep` and everything below them are left out."""
    seen = {root, *keep}
    level = [root]
    while level:
        below: list[int] = []
        for parent in level:
            for child in lister(parent):
                if child not in seen:
                    seen.add(child)
                    below.append(child)
                    yield parent, child
        level = below


class Reaper:
    """Kills and reaps everything below this process.

    The process must be a subreaper: then each orphan becomes its child, and "no child left" means "no descendant left". Where
    there are no subreapers it must `remember` often, and "nobody left" means nobody whom it has seen.

    Attributes:
        statuses: Wait status of every child that was reaped, by pid.
        killed: Processes that were alive when they were signalled, as pid and birth.
    """

    def __init__(self, lister: Lister, *, adopts: bool = LINUX) -> None:
        """Belongs to this very process.

        Args:
            lister: How to list children.
            adopts: Whether orphans become children of this process.
        """
        self._lister = lister
        self._me = os.getpid()
        self._adopts = adopts
        self._seen: dict[int, int] = {}
        self.statuses: dict[int, int] = {}
        self.killed: set[tuple[int, int]] = set()

    def reap(self) -> bool:
        """Collects whoever has ended. True when no child is left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.statuses[pid] = status

    def forget_all_but(self, pid: int) -> None:
        """Drops the statuses of everybody else: a scope that lives for days reaps many orphans."""
        self.statuses = {pid: self.statuses[pid]} if pid in self.statuses else {}

    def remember(self) -> None:
        """Writes down everybody below this process, for systems on which an orphan leaves its sight."""
        roots = (self._me, *self._seen)
        for root in roots:
            for _, pid in descendants(root, self._lister):
                stat = stat_of(pid)
                if stat is not None:
                    self._seen.setdefault(pid, stat.birth)

    def _remembered(self) -> list[int]:
        return [pid for pid, birth in self._seen.items() if (stat := stat_of(pid)) and stat.alive and stat.birth == birth]

    def _sweep_remembered(self) -> bool:
        """Kills everybody who was ever seen and still lives. True when there was nobody."""
        self.remember()
        left = self._remembered()
        for pid in left:
            self._signal(pid, functools.partial(os.kill, pid, signal.SIGKILL))
        return not left

    def sweep(self, keep: Collection[int] = ()) -> int:
        """One pass of SIGKILL, parents first so that no parent can replace a dead child. Answers how many still lived."""
        return sum(self._kill(parent, pid) for parent, pid in descendants(self._me, self._lister, keep))

    def _kill(self, parent: int, pid: int) -> bool:
        # A direct child keeps its number until this process reaps it. Anybody deeper could have ended and lent its number
        # to a stranger since it was listed: the pidfd pins whoever has it now, and the parent read after that, while the
        # pidfd still takes signals, says that it is ours. Without pidfds they wait until they are direct children.
        if parent == self._me:
            return self._signal(pid, lambda: os.kill(pid, signal.SIGKILL))
        handle = open_process(pid)
        if handle is None:
            return False
        try:
            return self._signal(pid, lambda: signal.pidfd_send_signal(handle, signal.SIGKILL), parent)
        finally:
            os.close(handle)

    def _signal(self, pid: int, send: Callable[[], None], parent: int | None = None) -> bool:
        stat = stat_of(pid)
        if stat is None or not stat.alive or (parent is not None and stat.parent not in (parent, self._me)):
            return False
        try:
            send()
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # a setuid program: it is still there, and the loop must not call it gone
        self.killed.add((pid, stat.birth))
        return True

    def kill_all(self, bell: Bell, budget: float = KILL_BUDGET) -> bool:
        """Sweeps and reaps until no child is left. True with proof; False when the budget ran out."""
        end = time.monotonic() + budget
        while True:
            self.sweep()
            alone = self._adopts or self._sweep_remembered()
            if self.reap() and alone:
                return True
            pause = time.monotonic() + _REAP_PATIENCE
            while (left := pause - time.monotonic()) > 0:
                bell.wait(left)
                if self.reap() and self._adopts:
                    return True
            if time.monotonic() > end:
                return False

    def kill_below(self, root: int, keep: Collection[int], bell: Bell, budget: float) -> bool:
        """Kills everything but `root`, `keep` and what hangs below `keep`; `root` reaps its own dead children itself."""
        end = time.monotonic() + budget
        while time.monotonic() < end:
            alive = self._sweep_below(root, keep)
            self.reap()
            if not alive:
                return True
            bell.wait(_REAP_PATIENCE)
        return False

    def _sweep_below(self, root: int, keep: Collection[int]) -> int:
        alive = 0
        for top in (root, self._me):
            others = {root, *keep} if top == self._me else keep
            for parent, pid in descendants(top, self._lister, others):
                alive += self._kill(parent, pid)
        return alive


class Bell:
    """Rings when a child ends: SIGCHLD turned into a readable descriptor, so that poll and waiting see it alike."""

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
        signal.signal(signal.SIGCHLD, _noticed)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def silence(self) -> None:
        """Empties the bell; call before reaping."""
        try:
            while os.read(self.descriptor, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """Gives the descriptors back; in a child that rings a bell of its own."""
        os.close(self.descriptor)
        os.close(self._write)

    def wait(self, seconds: float) -> None:
        """Returns when a child has ended, or after `seconds`."""
        if self._poll.poll(max(0.2, seconds * 1000)):
            self.silence()


def _pipe() -> tuple[int, int]:
    pair = os.pipe()
    for end in pair:
        os.set_blocking(end, False)
    return pair


def _noticed(_number: int, _frame: object) -> None:
    """Takes the signal; the wake-up descriptor does the work."""
