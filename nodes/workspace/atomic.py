"""Replaces a file as a whole: a reader, and whoever looks after a crash, sees the old content or the new, never a part."""

from __future__ import annotations

import os
from contextlib import suppress

from checkpoints.clock import fresh_id
from nodes.workspace.handles import DIRECTORY

ASIDE_PREFIX = ".checkrein-"
ASIDE_SUFFIX = ".tmp"
"""Names of files that are written aside. One is left behind only by a crash in between, and is safe to delete."""


def replace_file(folder: int, name: str, data: bytes, mode: int | None) -> None:
    """Writes `data` aside in the same folder, flushes it to the disk, renames it over `name` and flushes the folder.

    Args:
        folder: Open handle of the folder.
        name: Name in it; whatever has that name is replaced, and a link is replaced itself, never followed.
        data: The whole content.
        mode: Permission bits, or None for what the process's umask leaves of 0666.

    Raises:
        OSError: The write failed; `name` is as it was and nothing is left aside.
    """
    aside = f"{ASIDE_PREFIX}{fresh_id()}{ASIDE_SUFFIX}"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            if mode is not None:
                os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise
    _flush_folder(folder)


def is_aside(name: str) -> bool:
    """Whether a name is one of ours, left by a crash or in use this moment."""
    return name.startswith(ASIDE_PREFIX) and name.endswith(ASIDE_SUFFIX)


def _flush_folder(folder: int) -> None:
    fd = os.open(".", DIRECTORY, dir_fd=folder)
    try:
        # Some file systems (network ones above all) know no flush of a folder; the rename itself has happened.
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)
