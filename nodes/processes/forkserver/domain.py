"""The Landlock domain of a command: whom it may signal, what it may read, write and connect to.

Prepared in the guard, because a fresh child should do as little as possible, and entered by the child right before exec. A
domain only ever takes rights away, needs no privilege, and cannot be left. What it does not govern is said in `LIMITS`.

Landlock knows no "except": to hide a folder, everything beside it along its path is granted instead. So whatever appears
later beside a hidden path, in the same folder or in one above it, stays out of reach of a command that already runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from nodes.processes.forkserver import containment, system
from nodes.processes.forkserver.wire import Message

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

_READ = EXECUTE | READ_FILE | READ_DIR
_FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_RIGHTS_BY_ABI = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 5: 1 << 16}
"""One above the highest file right of each version that brought new ones (`linux/landlock.h`)."""

_CONNECT_TCP = 1 << 1
_SCOPE_ABSTRACT_SOCKETS = 1
_SCOPE_SIGNALS = 2
_NET_ABI = 4
_SCOPE_ABI = 6

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
"""Under /dev: what every build and test may write to."""

LIMITS = (
    "names and metadata of files stay visible",
    "UDP and named Unix sockets are not governed",
)


class Domain:
    """A prepared ruleset, and what it will mean.

    Attributes:
        rung: The containment that it gives.
        report: What of the confinement will be in force, and what is missing and why; empty when none was asked for.
    """

    def __init__(self, rung: str, ruleset: int | None, report: dict[str, Any]) -> None:
        self.rung = rung
        self.report = report
        self._ruleset = ruleset

    def enter(self) -> None:
        """Puts this process under the ruleset, for good.

        Raises:
            AbsentError: The kernel refused.
        """
        if self._ruleset is not None:
            system.landlock_restrict(self._ruleset)

    def close(self) -> None:
        """Gives the ruleset back; whoever entered it stays in it."""
        if self._ruleset is not None:
            os.close(self._ruleset)
            self._ruleset = None


def prepare(request: Message) -> Domain:
    """The domain for a command.

    Raises:
        AbsentError: Something was demanded that this kernel does not have.
    """
    abi = system.landlock_abi()
    rung = _rung(request["containment"], abi)
    wanted = request.get("confinement")
    scoped = _SCOPE_SIGNALS if rung == containment.SCOPED else 0
    if wanted is None or not abi:
        return _unconfined(request["containment"], rung, scoped, {} if wanted is None else _absent(wanted))
    return _confined(wanted, rung, scoped, abi)


def _rung(preference: str, abi: int) -> str:
    if preference == containment.NAMESPACE:
        return containment.NAMESPACE
    if not system.LINUX:
        return containment.BEST_EFFORT
    if preference == containment.REAP:
        return containment.REAP
    if abi >= _SCOPE_ABI:
        return containment.SCOPED
    if preference == containment.SCOPED:
        raise system.AbsentError(f"Landlock signal scope (ABI {abi}, needs {_SCOPE_ABI})", 0)
    return containment.REAP


def _unconfined(preference: str, rung: str, scoped: int, report: dict[str, Any]) -> Domain:
    if not scoped:
        return Domain(rung, None, report)
    try:
        return Domain(rung, system.landlock_ruleset(0, 0, scoped, 24), report)
    except system.AbsentError:
        if preference == containment.SCOPED:
            raise
        return Domain(containment.REAP, None, report)


def _absent(wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted["required"]:
        raise system.AbsentError("Landlock, which the confinement of commands needs", 0)
    reason = "this kernel has no Landlock"
    return {"in_force": [], "missing": {"files": reason, "tcp": reason}, "limits": list(LIMITS)}


def _confined(wanted: dict[str, Any], rung: str, scoped: int, abi: int) -> Domain:
    writable = [os.path.realpath(path) for path in wanted["writable"]]
    hidden = [os.path.realpath(path) for path in wanted["hidden"]]
    exposed = [path for path in hidden if any(_inside(path, root) for root in writable)]
    missing = _missing(wanted, abi)
    if wanted["required"] and (missing or exposed):
        raise system.AbsentError(f"confinement: {missing or f'{exposed} lie below writable folders'}", 0)
    offline = not wanted["network"] and abi >= _NET_ABI
    if not wanted["network"] and abi >= _SCOPE_ABI:
        scoped |= _SCOPE_ABSTRACT_SOCKETS
    every = max(top for version, top in _RIGHTS_BY_ABI.items() if version <= abi) - 1
    size = 24 if abi >= _SCOPE_ABI else 16 if abi >= _NET_ABI else 8
    ruleset = system.landlock_ruleset(every, _CONNECT_TCP if offline else 0, scoped, size)
    try:
        _grant(ruleset, every, writable, [path for path in hidden if path not in exposed])
    except system.AbsentError:
        os.close(ruleset)
        raise
    report = {
        "in_force": ["files", *(["tcp"] if offline else [])],
        "missing": missing,
        "writable": writable,
        "hidden": [path for path in hidden if path not in exposed],
        "exposed": exposed,
        "network": wanted["network"],
        "limits": list(LIMITS),
    }
    return Domain(rung, ruleset, report)


def _missing(wanted: dict[str, Any], abi: int) -> dict[str, str]:
    if wanted["network"] or abi >= _NET_ABI:
        return {}
    return {"tcp": f"this kernel's Landlock has version {abi}, and TCP needs {_NET_ABI}"}


def _grant(ruleset: int, every: int, writable: Sequence[str], hidden: Sequence[str]) -> None:
    # Listing is granted everywhere: metadata is not governed anyway, and a folder that cannot be listed breaks tools.
    _allow(ruleset, READ_DIR, "/")
    for path in _visible("/", hidden):
        _allow(ruleset, _READ & every, path)
    for name in DEVICES:
        _allow(ruleset, every, f"/dev/{name}")
    for root in writable:
        _allow(ruleset, every, root)


def _visible(folder: str, hidden: Sequence[str]) -> Iterator[str]:
    """The fewest paths that cover everything below `folder` but what is hidden."""
    if folder in hidden:
        return
    if not any(_inside(path, folder) for path in hidden):
        yield folder
        return
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return  # what the guard cannot list its command cannot read
    for path in found:
        yield from _visible(path, hidden)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _allow(ruleset: int, rights: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not for this user: nothing to grant
    try:
        is_folder = os.fstat(descriptor).st_mode & 0o170000 == 0o040000
        system.landlock_allow_path(ruleset, rights if is_folder else rights & _FILE_ONLY, descriptor)
    finally:
        os.close(descriptor)
