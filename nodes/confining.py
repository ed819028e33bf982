"""What confinement a command will run under, in one line for whoever is asked to approve it."""

from __future__ import annotations

import os
from pathlib import Path

from nodes.display import escape_line
from nodes.processes.forkserver.system import landlock_abi
from nodes.processes.spec import Confinement

NAMED = 4
"""Writable places that the line names; of more it says how many."""

TCP_SINCE = 4
"""Version of Landlock that learned about TCP."""


def held_by(confinement: Confinement | None) -> str:
    """The line. Asks the kernel and looks at the disk, so run it in a thread; the result of the command says what came true."""
    if confinement is None:
        return "confinement: none; it may touch whatever this user may"
    version = landlock_abi()
    if not version:
        end = "so it will not start" if confinement.required else "so it may touch whatever this user may"
        return f"confinement: not possible, this kernel has no Landlock, {end}"
    parts = [_writes(confinement), f"{len(confinement.hidden)} places hidden", _network(confinement, version)]
    exposed = _exposed(confinement)
    if exposed:
        parts.append(f"BUT {len(exposed)} of the hidden places lie where it may write and stay in reach: {_some(exposed)}")
    return f"confinement: {'; '.join(parts)}"


def _writes(confinement: Confinement) -> str:
    return f"writes only in {_some(confinement.writable)}"


def _network(confinement: Confinement, version: int) -> str:
    if confinement.network:
        return "TCP open"
    return "no TCP" if version >= TCP_SINCE else "TCP open, since this kernel cannot close it"


def _exposed(confinement: Confinement) -> tuple[str, ...]:
    """Hidden places that are there and lie below a writable one: Landlock cannot take a part of a folder out."""
    roots = [Path(os.path.realpath(path)) for path in confinement.writable]
    there = [path for path in confinement.hidden if Path(path).exists()]
    return tuple(path for path in there if any(Path(os.path.realpath(path)).is_relative_to(root) for root in roots))


def _some(paths: tuple[str, ...]) -> str:
    named = ", ".join(escape_line(path) for path in paths[:NAMED])
    return f"{named} and {len(paths) - NAMED} more" if len(paths) > NAMED else named
