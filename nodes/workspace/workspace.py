"""The workspace folder: the only door through which file tools touch the disk."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import BinaryIO, Self

from nodes.workspace.atomic import replace_file
from nodes.workspace.errors import PathError, PathEscapeError, from_os_error
from nodes.workspace.handles import DIRECTORY, MAX_LINKS, Root, link_names, open_folder, read_link
from nodes.workspace.names import MAX_DEPTH, below, components

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Largest file that is taken into memory as a whole (edit, diff, digest of a planned change)."""

_RACES = 16
"""How often a name may turn into a link between the look and the open before the call gives up."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a path ends: an open folder and a name in it that was no link when it was looked at.

    Attributes:
        folder: Handle of the folder, open while the place is used.
        name: The last component; empty when the path names a folder by `.` or `..`.
    """

    folder: int
    name: str


class Workspace:
    """File access inside one folder. Every call blocks: run it in a thread.

    The folder itself may be a symbolic link; it is followed once, on opening. Errors are PathEscapeError for a path that leads
    out and PathError for everything else that is wrong with a path. Not covered, because no handle can tell: a hard link that
    somebody with rights on both sides made (writes replace the name and so never reach the other side; reads do), and a
    folder that somebody with rights outside moves out while it is open.
    """

    def __init__(self, path: str, *, kernel: bool = True, stop: Event | None = None) -> None:
        """Opens the folder.

        Args:
            path: The folder, absolute.
            kernel: Use openat2 where there is one.
            stop: Set by whoever no longer wants the answer; walks end at their next entry then.

        Raises:
            PathError: It is not there, is no folder, or may not be read.
        """
        self.path = path
        self.stop = stop or Event()
        aliases = tuple(dict.fromkeys((os.path.normpath(path), os.path.realpath(path))))
        try:
            fd = os.open(path, DIRECTORY)
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not a path"
            raise PathError(path, f"the workspace folder cannot be opened: {reason}") from error
        self._root = Root(fd=fd, aliases=aliases, kernel=kernel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives the handle back. The workspace cannot be used after it."""
        os.close(self._root.fd)

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A handle of the folder `path`, closed afterwards."""
        names = components(path, self._root.aliases)
        with _named(path), _missing_is_escape(names):
            fd = open_folder(self._root, names)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def place(self, path: str, *, create: bool = False) -> Iterator[Place]:
        """Where `path` ends once every link is followed; with `create`, missing folders on the way are made."""
        names = components(path, self._root.aliases)
        with _named(path), _missing_is_escape(names):
            place = self._locate(path, names, create=create)
        try:
            yield place
        finally:
            os.close(place.folder)

    def relative(self, path: str) -> str:
        """The path below the workspace with `..` taken away in the text, as a shell's `cd` does; `""` for the workspace itself.

        Nothing is opened. Raises PathEscapeError or PathError when the text alone is refused.
        """
        names: list[str] = []
        for name in components(path, self._root.aliases):
            if name != "..":
                names.append(name)
            elif names:
                names.pop()
            else:
                raise PathEscapeError
        return "/".join(names)

    def resolved(self, path: str) -> str:
        """Where the path leads now, with every link followed, relative to the workspace: for people and rules to look at.

        A path that leads out gives its real absolute place. What is opened is decided anew, by handles, at the open.
        """
        names = components(path, self._root.aliases)
        real = os.path.realpath("/".join([self._root.aliases[-1], *names]))
        try:
            return below(real, self._root.aliases) or "."
        except PathEscapeError:
            return real

    def open_file(self, path: str) -> BinaryIO:
        """Opens a regular file for reading. Never blocks on a pipe and never touches a device.

        The caller closes it.
        """
        for _ in range(_RACES):
            with self.place(path) as place, _named(path):
                _require_regular(path, place)
                fd = _open_regular(place)
            if fd is not None:
                return os.fdopen(fd, "rb")
        raise PathError(path, "it keeps turning into a symbolic link")

    def read_bytes(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """The whole file.

        Raises:
            PathError: It is larger than `limit` bytes, or cannot be read.
        """
        with self.open_file(path) as file, _named(path):
            data = file.read(limit + 1)
        if len(data) > limit:
            raise PathError(path, f"the file is larger than {limit} bytes")
        return data

    def find_bytes(self, path: str, limit: int = MAX_FILE_BYTES) -> bytes | None:
        """As `read_bytes`, but None when there is no such file."""
        try:
            return self.read_bytes(path, limit)
        except PathError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno == errno.ENOENT:
                return None
            raise

    def write_bytes(self, path: str, data: bytes) -> None:
        """Replaces or creates a file, whole or not at all, making the folders that are missing.

        An existing file keeps its mode; one without any write permission is refused. A link is followed, its target replaced.
        """
        with self.place(path, create=True) as place, _named(path):
            mode = _replaceable_mode(path, place)
            replace_file(place.folder, place.name, data, mode)

    def digest(self, path: str) -> str | None:
        """SHA-256 of a file in hexadecimal, or None when there is no such file."""
        data = self.find_bytes(path)
        return None if data is None else digest_of(data)

    def already_written(self, path: str, content: str) -> bool:
        """Whether the file holds exactly this text: how a write settles itself after a crash."""
        return self.digest(path) == digest_of(encoded(path, content))

    def _locate(self, path: str, names: tuple[str, ...], *, create: bool) -> Place:
        for _ in range(MAX_LINKS):
            if not names or names[-1] == "..":
                return Place(folder=open_folder(self._root, names), name="")
            folder = open_folder(self._root, names[:-1], create=create)
            try:
                target = read_link(folder, names[-1])
                if target is None:
                    return _keep(folder, names[-1])
                names = link_names(self._root, names[:-1], target)
            finally:
                os.close(folder)
            if len(names) > 2 * MAX_DEPTH:
                break
        raise PathError(path, "too many symbolic links, or a loop of them")


def encoded(path: str, content: str) -> bytes:
    """Text as the UTF-8 that is written.

    Raises:
        PathError: It holds half a surrogate pair, which no UTF-8 file can.
    """
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise PathError(path, f"the text cannot be written as UTF-8: {error.reason}") from error


def digest_of(data: bytes) -> str:
    """SHA-256 in hexadecimal, the digest by which a file's content is recognised."""
    return hashlib.sha256(data).hexdigest()


def _keep(folder: int, name: str) -> Place:
    return Place(folder=os.dup(folder), name=name)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Turns the operating system's refusals into ours, with the path as it was asked for."""
    try:
        yield
    except OSError as error:
        raise from_os_error(path, error) from error


@contextmanager
def _missing_is_escape(names: tuple[str, ...]) -> Iterator[None]:
    """A path whose text leads out escapes even when a folder on the way is missing, so that the answer tells nothing."""
    try:
        yield
    except FileNotFoundError:
        depth = 0
        for name in names:
            depth += -1 if name == ".." else 1
            if depth < 0:
                raise PathEscapeError from None
        raise


def _require_regular(path: str, place: Place) -> os.stat_result:
    status = os.stat(place.name or ".", dir_fd=place.folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise PathError(path, f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'a special file')}, not a regular file")
    return status


def _open_regular(place: Place) -> int | None:
    """The file, or None when it stopped being a regular file since it was looked at."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(place.name, flags, dir_fd=place.folder)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _replaceable_mode(path: str, place: Place) -> int | None:
    """Permission bits to keep, or None for a new file."""
    if not place.name:
        raise PathError(path, "it is a folder, not a regular file")
    try:
        status = _require_regular(path, place)
    except FileNotFoundError:
        return None
    if not status.st_mode & 0o222:
        raise PathError(path, "the file is read-only")
    return stat.S_IMODE(status.st_mode)
