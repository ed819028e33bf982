"""Looking at processes on macOS, which has neither /proc nor subreapers: the part that is best effort.

An orphan goes to launchd there, out of its guard's sight. So the guard looks every 50 ms, remembers every descendant by number
and start time, and kills what it remembers. A process that forks away between two looks escapes; `Rung.BEST_EFFORT` says so.
Layouts are from `sys/proc_info.h` (PROC_PIDTBSDINFO). Written from the headers; not exercised by this project's CI.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

_PROC_PIDTBSDINFO = 3
_BSDINFO_SIZE = 136
_STATUS, _PARENT = 4, 16
_START_SECONDS = 120
_ZOMBIE = 5
_MOST_CHILDREN = 4096


class BsdInfo(NamedTuple):
    """The few fields of `struct proc_bsdinfo` that matter here; `birth` is in microseconds since the epoch."""

    zombie: bool
    parent: int
    birth: int


def parse(record: bytes) -> BsdInfo:
    """Reads a `struct proc_bsdinfo`."""
    (status,) = struct.unpack_from("=I", record, _STATUS)
    (parent,) = struct.unpack_from("=I", record, _PARENT)
    seconds, microseconds = struct.unpack_from("=QQ", record, _START_SECONDS)
    return BsdInfo(status == _ZOMBIE, parent, seconds * 1_000_000 + microseconds)


def info(pid: int) -> BsdInfo | None:
    """What the kernel says of a process, or None when there is none."""
    record = ctypes.create_string_buffer(_BSDINFO_SIZE)
    got = _libproc().proc_pidinfo(pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), record, _BSDINFO_SIZE)
    return parse(record.raw) if got == _BSDINFO_SIZE else None


def children(pid: int) -> list[int]:
    """Direct children; empty when the process is gone."""
    found = (ctypes.c_int * _MOST_CHILDREN)()
    count = _libproc().proc_listchildpids(pid, found, ctypes.sizeof(found))
    return list(found[: max(0, count)])


def _libproc() -> ctypes.CDLL:
    return ctypes.CDLL("/usr/lib/libproc.dylib", use_errno=True)
