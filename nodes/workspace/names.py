"""What the text of a path may be, before anything is opened.

Relative to the workspace is the rule. An absolute path is taken when its text lies under the workspace folder, as it was named
or as it really is, because models copy what `pwd` printed; it is then opened as the relative rest, under the same checks.
`~` is never expanded: a path that starts with it means a home folder, so it escapes. Windows drive and share paths escape on
every system. Names keep their case and their Unicode form: on POSIX two spellings are two files, so nothing is folded.
On Windows (not supported: it has no directory handles in Python) reserved names such as CON would have to be refused here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from nodes.workspace.errors import PathError, PathEscapeError

MAX_PATH_BYTES = 4095
"""PATH_MAX of Linux without its NUL."""

MAX_NAME_BYTES = 255
"""NAME_MAX of every file system in common use."""

MAX_DEPTH = 128
"""Deepest path in components; each one may hold a directory handle while a path is walked."""

_WINDOWS_ABSOLUTE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def components(path: str, aliases: Iterable[str]) -> tuple[str, ...]:
    """Splits a path asked for by a tool call into names below the workspace; `..` stays, for the walk to judge.

    Args:
        path: The text as it was asked for.
        aliases: Absolute spellings of the workspace folder.

    Raises:
        PathEscapeError: It is absolute and elsewhere, or names a home folder or a Windows drive.
        PathError: It is empty, too long, too deep, or holds a NUL or text that is no UTF-8.
    """
    _check_text(path)
    if path == "~" or path.startswith("~/") or _WINDOWS_ABSOLUTE.match(path):
        raise PathEscapeError
    names = split(below(path, aliases) if path.startswith("/") else path)
    _check_names(path, names)
    return names


def below(path: str, aliases: Iterable[str]) -> str:
    """The rest of an absolute path under one of the spellings of the workspace.

    Raises:
        PathEscapeError: It is under none of them.
    """
    for alias in aliases:
        if path == alias:
            return ""
        if path.startswith(alias.rstrip("/") + "/"):
            return path[len(alias.rstrip("/")) + 1 :]
    raise PathEscapeError


def split(path: str) -> tuple[str, ...]:
    """The components of a relative path, without the empty ones and the dots."""
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _check_text(path: str) -> None:
    if not path.strip():
        raise PathError(path, "an empty path names nothing", 'Use "." for the workspace folder itself.')
    if "\0" in path:
        raise PathError(path, "a path cannot hold a NUL character")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise PathError(path, "a path must be text that UTF-8 can hold") from None
    if length > MAX_PATH_BYTES:
        raise PathError(path, f"the path is too long ({length} bytes; at most {MAX_PATH_BYTES})")


def _check_names(path: str, names: tuple[str, ...]) -> None:
    if len(names) > MAX_DEPTH:
        raise PathError(path, f"the path is too deep ({len(names)} components; at most {MAX_DEPTH})")
    longest = max((len(os.fsencode(name)) for name in names), default=0)
    if longest > MAX_NAME_BYTES:
        raise PathError(path, f"a name in the path is too long ({longest} bytes; at most {MAX_NAME_BYTES})")
