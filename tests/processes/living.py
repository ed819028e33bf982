"""Short forms the tests share: specs, and a look at which processes live."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nodes.processes.forkserver import tree
from nodes.processes.spec import ScopeSpec

PATH = os.environ.get("PATH", os.defpath)


def command(*argv: str, cwd: str | Path = "/", **options: Any) -> ScopeSpec:
    """A spec with nothing but a PATH around it."""
    options.setdefault("env", {"PATH": PATH})
    return ScopeSpec(argv=argv, cwd=str(cwd), **options)


def shell(line: str, cwd: str | Path = "/", **options: Any) -> ScopeSpec:
    """A spec for a line of shell."""
    return command("/bin/sh", "-c", line, cwd=cwd, **options)


def alive(pid: int) -> bool:
    """Whether the process can still run code."""
    stat = tree.stat_of(pid)
    return stat is not None and stat.alive


def carriers(tag: str) -> list[int]:
    """Live processes whose environment holds this word."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or not alive(int(entry.name)):
            continue
        if tag.encode() in tree.read_small(f"/proc/{entry.name}/environ"):
            found.append(int(entry.name))
    return found
