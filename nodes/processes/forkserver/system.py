"""The kernel's calls that the standard library does not wrap, each saying plainly when it is absent.

Numbers are from the Linux UAPI headers (`linux/prctl.h`, `linux/sched.h`, `linux/landlock.h`). On other systems every call
answers "absent"; the callers then stand on a lower rung and say so.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

LINUX = sys.platform == "linux"

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000

MS_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8
MS_REC_PRIVATE = 0x4000 | 0x4_0000

SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1

_libc = ctypes.CDLL(None, use_errno=True)


class AbsentError(Exception):
    """The kernel does not lend this facility here; the message says which and why."""

    def __init__(self, facility: str, number: int) -> None:
        self.facility = facility
        self.number = number
        super().__init__(f"{facility}: {os.strerror(number)}")


def _check(result: int, facility: str) -> int:
    if result < 0:
        raise AbsentError(facility, ctypes.get_errno())
    return result


def prctl(option: int, value: int, facility: str) -> None:
    """Sets one process attribute.

    Raises:
        AbsentError: Not Linux, or the kernel refused.
    """
    if not LINUX:
        raise AbsentError(facility, errno.ENOSYS)
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero), facility)


def become_subreaper() -> None:
    """Makes orphans below this process its own children, so that waiting for them proves that they are gone."""
    prctl(PR_SET_CHILD_SUBREAPER, 1, "child subreaper")


def name_process(name: str) -> None:
    """Shows `name` (at most 15 bytes) in process lists; nothing where the system has no such call."""
    if LINUX:
        _libc.prctl(ctypes.c_int(PR_SET_NAME), ctypes.c_char_p(name.encode()), 0, 0, 0)


def unshare(flags: int, facility: str) -> None:
    """Moves this process (for a pid namespace: its next children) into new namespaces.

    Raises:
        AbsentError: Not Linux, or the kernel refused.
    """
    if not LINUX:
        raise AbsentError(facility, errno.ENOSYS)
    _check(_libc.unshare(ctypes.c_int(flags)), facility)


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, facility: str) -> None:
    """Mounts, without data.

    Raises:
        AbsentError: The kernel refused.
    """
    _check(_libc.mount(source, target, kind, ctypes.c_ulong(flags), None), facility)


def landlock_abi() -> int:
    """The Landlock version of this kernel; 0 when it has none, or when a filter hides it."""
    if not LINUX:
        return 0
    found = _libc.syscall(
        ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(LANDLOCK_CREATE_RULESET_VERSION),
    )
    return max(0, int(found))


def landlock_ruleset(handled_fs: int, handled_net: int, scoped: int, size: int) -> int:
    """Opens a ruleset; the caller closes the descriptor.

    Args:
        handled_fs: Rights on files that are denied unless a rule grants them.
        handled_net: The same for TCP (ABI 4).
        scoped: What may not leave the domain: 1 abstract sockets, 2 signals (ABI 6).
        size: Bytes of the attribute that this ABI knows (8, 16 or 24).

    Raises:
        AbsentError: The kernel refused.
    """
    attribute = (ctypes.c_uint64 * 3)(handled_fs, handled_net, scoped)
    made = _libc.syscall(
        ctypes.c_long(SYS_LANDLOCK_CREATE_RULESET), ctypes.byref(attribute), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    return _check(int(made), "Landlock ruleset")


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_allow_path(ruleset: int, allowed: int, parent: int) -> None:
    """Grants rights below an open folder or file.

    Raises:
        AbsentError: The kernel refused, for example a folder right on a plain file.
    """
    rule = _PathRule(allowed, parent)
    added = _libc.syscall(
        ctypes.c_long(SYS_LANDLOCK_ADD_RULE), ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0)
    )
    _check(int(added), "Landlock path rule")


def landlock_restrict(ruleset: int) -> None:
    """Puts this process and all its descendants under the ruleset, for good.

    An ordinary user must give up setuid programs for it (no_new_privs); a privileged one keeps them.

    Raises:
        AbsentError: The kernel refused.
    """
    arguments = (ctypes.c_long(SYS_LANDLOCK_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0))
    if _libc.syscall(*arguments) == 0:
        return
    prctl(PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
    _check(int(_libc.syscall(*arguments)), "Landlock restriction")
