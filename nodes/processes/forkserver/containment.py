"""The rungs of the containment ladder, from the strictest to the plainest, and the probe that says which ones exist here.

namespace: a pid namespace of its own; the kernel ends every process in it together with the first one.
scoped: reaping, and a Landlock domain from which no signal reaches the guard, the spawner or the runtime (Linux 6.12).
reap: the guard is a subreaper and kills until no child is left. A command that kills guard and spawner escapes.
best_effort: no subreaper in this system (macOS): what the guard saw being started is killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from nodes.processes.forkserver import system

NAMESPACE = "namespace"
SCOPED = "scoped"
REAP = "reap"
BEST_EFFORT = "best_effort"

_LANDLOCK_SCOPE_SIGNAL = 2
_LANDLOCK_SCOPE_ABI = 6
_LANDLOCK_TCP_ABI = 4


def enter_namespace() -> None:
    """Makes the next child of this process the first process of a new pid namespace.

    Root needs no user namespace; anybody else gets one in which only the own ids exist.

    Raises:
        AbsentError: The kernel or its policy refuses, a refused id map included (Ubuntu's AppArmor rule makes such a
            namespace, but an empty one).
    """
    try:
        system.unshare(system.CLONE_NEWPID, "pid namespace")
        return
    except system.AbsentError:
        uid, gid = os.geteuid(), os.getegid()
    system.unshare(system.CLONE_NEWUSER | system.CLONE_NEWPID, "user and pid namespace")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _write(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise system.AbsentError(f"user namespace ({path})", error.errno or 0) from error


def show_own_processes() -> None:
    """Gives the first process of a new pid namespace a /proc that shows this namespace, in mounts that nobody else sees.

    Raises:
        AbsentError: The kernel refuses (containers that mask /proc do).
    """
    system.unshare(system.CLONE_NEWNS, "mount namespace")
    system.mount(b"none", b"/", None, system.MS_REC_PRIVATE, "private mounts")
    system.mount(b"proc", b"/proc", b"proc", system.MS_NOSUID_NODEV_NOEXEC, "own /proc")


def scope_signals() -> None:
    """Lets this process and its descendants signal, and trace, only one another.

    Raises:
        AbsentError: The kernel has no Landlock, or one older than ABI 6, or a filter refuses it.
    """
    abi = system.landlock_abi()
    if abi < _LANDLOCK_SCOPE_ABI:
        raise system.AbsentError(f"Landlock signal scope (ABI {abi}, needs {_LANDLOCK_SCOPE_ABI})", 38)
    ruleset = system.landlock_ruleset(0, 0, _LANDLOCK_SCOPE_SIGNAL, 24)
    try:
        system.landlock_restrict(ruleset)
    finally:
        os.close(ruleset)


def _in_new_namespace() -> None:
    enter_namespace()
    _answer_of_child(show_own_processes)


def _answer_of_child(attempt: Callable[[], None]) -> None:
    reason = attempt_in_child(attempt)
    if reason is not None:
        raise system.AbsentError(reason, 0)


def attempt_in_child(attempt: Callable[[], None]) -> str | None:
    """Tries something irreversible in a child that is thrown away. None when it worked, else why not."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os.write(write, b"+")
        except (system.AbsentError, OSError) as error:
            os.write(write, f"-{error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        answer = os.read(read, 4096).decode(errors="replace")
    finally:
        os.close(read)
        os.waitpid(pid, 0)
    return None if answer == "+" else answer[1:] or "the probe died"


def probe() -> dict[str, object]:
    """Which rungs this machine and user have, and why not. Run it in a process that is thrown away."""
    missing = {
        NAMESPACE: attempt_in_child(_in_new_namespace),
        SCOPED: attempt_in_child(scope_signals),
        REAP: attempt_in_child(system.become_subreaper),
    }
    present = [rung for rung, reason in missing.items() if reason is None] or [BEST_EFFORT]
    return {
        "rungs": present,
        "default": next(rung for rung in (SCOPED, REAP, BEST_EFFORT) if rung in present or rung == BEST_EFFORT),
        "missing": {rung: reason for rung, reason in missing.items() if reason is not None},
        "landlock_abi": system.landlock_abi(),
        "confinement": {"files": system.landlock_abi() >= 1, "tcp": system.landlock_abi() >= _LANDLOCK_TCP_ABI},
        "pidfd": hasattr(os, "pidfd_open"),
        "children_file": os.access(f"/proc/self/task/{os.getpid()}/children", os.R_OK),
    }
