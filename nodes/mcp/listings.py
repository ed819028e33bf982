"""What servers offer, and a place to keep it: the next runtime knows the tools without starting the servers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from checkpoints.clock import Clock, SystemClock, fresh_id
from nodes.configuration import ServerTable

MAX_AGE = timedelta(days=1)
"""After this a server is asked again, so that a new version's tools are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One tool as a server lists it. Every word of it is the server's.

    Attributes:
        name: The server's own name for it.
        description: What it says about it.
        schema: The JSON schema of the arguments.
    """

    name: str
    description: str
    schema: Mapping[str, Any]


class Listings:
    """Keeps listings in a folder of this user's. Every method blocks, and none fails: a listing that is lost is made again.

    Args:
        folder: Where; None keeps nothing.
        clock: Tells how old one is.
    """

    def __init__(self, folder: Path | None, clock: Clock | None = None) -> None:
        self._folder = folder
        self._clock = clock or SystemClock()

    def known(self, server: str, table: ServerTable) -> tuple[Listed, ...] | None:
        """What the server listed last, unless that is too long ago, or its table has changed since."""
        if self._folder is None:
            return None
        try:
            kept = orjson.loads((self._folder / f"{server}.json").read_bytes())
            age = self._clock.now().timestamp() - kept["at"]
            if kept["table"] != _digest(table) or not 0 <= age <= MAX_AGE.total_seconds():
                return None
            return tuple(Listed(**entry) for entry in kept["tools"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, server: str, table: ServerTable, tools: tuple[Listed, ...]) -> None:
        """Keeps a listing in place of the last one."""
        kept = {"at": self._clock.now().timestamp(), "table": _digest(table), "tools": [asdict(tool) for tool in tools]}
        with suppress(OSError, TypeError):
            if self._folder is not None:
                _replace(self._folder, f"{server}.json", orjson.dumps(kept))

    def forget(self, server: str) -> None:
        """Drops a listing that has turned out to be wrong."""
        with suppress(OSError):
            if self._folder is not None:
                (self._folder / f"{server}.json").unlink()


def _replace(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = folder / f".{fresh_id()}.tmp"
    try:
        aside.write_bytes(data)
        aside.replace(folder / name)
    finally:
        aside.unlink(missing_ok=True)


def _digest(table: ServerTable) -> str:
    """What the listing depends on: how the server is reached and started. A change of its limits keeps it."""
    told = table.model_dump_json(include={"command", "url", "env_names", "confinement"})
    return hashlib.sha256(told.encode()).hexdigest()
