"""Channel versions: strings in memory, as LangGraph's server and its own savers make them, and numbers on disk.

A thread that the server drives too must not mix two kinds, which cannot be compared. The strings are 49 characters long and
there are dozens in a checkpoint, so a row keeps the number that they begin with: negative, to tell it from a version that was
a number in memory already (another driver's, an old thread's).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_STRING = re.compile(r"\d{32}\..+")


def next_version(current: Any) -> Any:
    """The version after this one, of its kind: a string or, on a thread that has numbers, a number; None begins."""
    if isinstance(current, int):
        return current + 1
    return _string(1 + (int(current.partition(".")[0]) if current else 0))


def packed(versions: Mapping[str, Any]) -> dict[str, Any]:
    """Versions by channel as a row keeps them."""
    return {channel: _pack(version) for channel, version in versions.items()}


def unpacked(versions: Mapping[str, Any]) -> dict[str, Any]:
    """What `packed` gave, read back. The part behind the number is not kept: it only ever told forks apart in memory."""
    return {
        channel: _string(-version) if isinstance(version, int) and version < 0 else version
        for channel, version in versions.items()
    }


def _pack(version: Any) -> Any:
    return -int(version[:32]) if isinstance(version, str) and _STRING.fullmatch(version) else version


def _string(number: int) -> str:
    return f"{number:032}.{0:016}"
