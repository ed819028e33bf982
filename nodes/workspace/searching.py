"""Searches files for a regular expression, bounded in time, matches and bytes.

The patterns are RE2's, so none can hang it. Files are reached by the workspace's handles. ripgrep is not used, although
it is faster on large trees: it opens by path, so a folder swapped for a link between its look and its open would lead
it outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from nodes.workspace.bounds import RESULT_BYTES, size
from nodes.workspace.errors import WorkspaceError
from nodes.workspace.patterns import Pattern, shell_pattern
from nodes.workspace.reading import is_binary
from nodes.workspace.walking import Walk
from nodes.workspace.workspace import Workspace

MAX_MATCHES = 200
MAX_SEARCHED_BYTES = 4 * 1024 * 1024
"""Larger files are passed over and counted: they are data, not source."""

SECONDS = 10.0
_SHOWN_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A matching line.

    Attributes:
        path: Relative to the workspace.
        line: Its number, from 1.
        text: The line, or the part of it round the match when it is long.
    """

    path: str
    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class Search:
    """One search and what it left out.

    Attributes:
        matches: What was found, in the order of the walk.
        files: Files searched.
        large: Files passed over for their size.
        unread: Files that could not be read.
        stopped: Why it ended early, or empty.
    """

    matches: list[Found] = field(default_factory=list)
    files: int = 0
    large: int = 0
    unread: int = 0
    stopped: str = ""


def search(workspace: Workspace, pattern: Pattern, start: str, name: str, *, ignored: bool = False) -> Search:
    """Searches every text file below the folder `start`, or the file `start` itself. Links are not followed.

    Args:
        workspace: Where.
        pattern: From `compiled`.
        start: Folder or file, relative to the workspace; `""` for all of it.
        name: A shell pattern that the file's name must match, or empty.
        ignored: Search also what git ignores.
    """
    found = Search()
    walk = Walk(workspace=workspace, depth=100, seconds=SECONDS, ignored=ignored)
    wanted = shell_pattern(name)
    used = 0
    for path in _files(walk, start, found):
        if not wanted.search(os.fsencode(path.rsplit("/", 1)[-1])):
            continue
        for match in _in_file(workspace, path, pattern, found):
            used += size(match.path) + size(match.text) + 12
            if len(found.matches) == MAX_MATCHES or used > RESULT_BYTES:
                found.stopped = f"stopped after {len(found.matches)} matches"
                return found
            found.matches.append(match)
    found.stopped = walk.stopped
    return found


def _files(walk: Walk, start: str, found: Search) -> Iterator[str]:
    if start and _is_file(walk.workspace, start):
        yield start
        return
    for entry in walk.entries(start):
        if entry.kind != "file":
            continue
        if entry.size > MAX_SEARCHED_BYTES:
            found.large += 1
            continue
        yield entry.path
    found.unread += walk.unread


def _is_file(workspace: Workspace, path: str) -> bool:
    try:
        workspace.open_file(path).close()
    except WorkspaceError:
        return False
    return True


def _in_file(workspace: Workspace, path: str, pattern: Pattern, found: Search) -> Iterator[Found]:
    try:
        data = workspace.read_bytes(path, MAX_SEARCHED_BYTES)
    except WorkspaceError:
        found.unread += 1
        return
    found.files += 1
    if is_binary(data[:8192]):
        return
    for number, line in enumerate(data.split(b"\n"), start=1):
        if match := pattern.search(line):
            yield Found(path=path, line=number, text=_around(line.removesuffix(b"\r"), match.start()))


def _around(line: bytes, at: int) -> str:
    if len(line) <= _SHOWN_BYTES:
        return line.decode("utf-8", "replace")
    first = max(0, at - _SHOWN_BYTES // 3)
    piece = line[first : first + _SHOWN_BYTES].decode("utf-8", "ignore")
    return f"{'...' if first else ''}{piece}... [line of {len(line)} bytes]"
