"""Walks what lies under a folder of the workspace, bounded in entries and time, never through a link."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

from nodes.workspace.atomic import is_aside
from nodes.workspace.errors import WorkspaceError
from nodes.workspace.handles import read_link
from nodes.workspace.ignoring import IgnoreRules, extended, rules_at
from nodes.workspace.workspace import Workspace

MAX_VISITED = 200_000
"""Entries looked at before a walk stops, ignored ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing in a folder.

    Attributes:
        path: Relative to the workspace.
        kind: `file`, `folder`, `link` or `special`.
        size: Bytes of a file, else 0.
        target: Where a link points, else empty.
    """

    path: str
    kind: str
    size: int = 0
    target: str = ""


@dataclass(slots=True, kw_only=True)
class Walk:
    """One walk, breadth first, names in order; says afterwards what it left out.

    Attributes:
        workspace: Where it walks.
        depth: Levels below the start that are listed.
        seconds: Time after which it stops.
        ignored: Show also what git ignores.
        stopped: Why it ended early, or empty.
        unread: Folders that could not be opened.
    """

    workspace: Workspace
    depth: int
    seconds: float
    ignored: bool = False
    stopped: str = ""
    unread: int = 0
    _visited: int = field(default=0, init=False)

    def entries(self, start: str) -> Iterator[Entry]:
        """Every entry below the folder `start`, relative to the workspace, `""` for the workspace itself.

        Raises:
            WorkspaceError: The folder cannot be opened, or lies outside.
        """
        until = monotonic() + self.seconds
        rules = IgnoreRules() if self.ignored else rules_at(self.workspace, start)
        first: list[Entry] | None = self._children(start, rules)
        pending = deque([(start, rules, first, self.depth)])
        while pending:
            path, rules, entries, depth = pending.popleft()
            for entry in entries if entries is not None else self._known(path, rules):
                yield entry
                if self._is_over(until):
                    return
                if entry.kind == "folder" and depth > 1:
                    pending.append((entry.path, self._inside(rules, entry.path), None, depth - 1))

    def _is_over(self, until: float) -> bool:
        if self.workspace.stop.is_set():
            self.stopped = "stopped before its end"
        elif monotonic() > until:
            self.stopped = self.stopped or f"stopped after {self.seconds:g} s"
        return bool(self.stopped)

    def _inside(self, rules: IgnoreRules, path: str) -> IgnoreRules:
        return rules if self.ignored else extended(rules, self.workspace, path)

    def _known(self, path: str, rules: IgnoreRules) -> list[Entry]:
        try:
            return self._children(path, rules)
        except WorkspaceError:
            self.unread += 1
            return []

    def _children(self, path: str, rules: IgnoreRules) -> list[Entry]:
        entries = []
        with self.workspace.folder(path or ".") as folder:
            for name in self._names(folder):
                entry = _look(folder, f"{path}/{name}" if path else name, name)
                if entry and not is_aside(name) and (self.ignored or not self._ignores(rules, entry)):
                    entries.append(entry)
        return entries

    def _names(self, folder: int) -> list[str]:
        with os.scandir(folder) as found:
            names = [entry.name for entry in islice(found, MAX_VISITED - self._visited + 1)]
        self._visited += len(names)
        if self._visited > MAX_VISITED:
            self.stopped = f"stopped after {MAX_VISITED} entries"
        return sorted(names)

    def _ignores(self, rules: IgnoreRules, entry: Entry) -> bool:
        return rules.ignores(entry.path, folder=entry.kind == "folder")


def _look(folder: int, path: str, name: str) -> Entry | None:
    """The entry, or None when it vanished since the folder was read."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return Entry(path=path, kind="link", target=read_link(folder, name) or "")
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return Entry(path=path, kind="folder")
    regular = stat.S_ISREG(status.st_mode)
    return Entry(path=path, kind="file" if regular else "special", size=status.st_size if regular else 0)
