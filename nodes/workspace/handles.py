"""Opens a folder below a root by handles, so that what is checked is what is opened.

Two ways, one answer. Linux's openat2(2) with RESOLVE_BENEATH resolves a whole path in one call and refuses every way out. It
also refuses absolute links that lead back inside, and it is not everywhere: the walk below decides then, component by
component, with O_NOFOLLOW and links that it resolves itself. `..` steps back to a handle that was already open, never to
what the file system says the parent is, so a folder moved while it is walked does not lead out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import suppress
from dataclasses import dataclass

from nodes.workspace.errors import PathError, PathEscapeError
from nodes.workspace.names import MAX_DEPTH, below, split

MAX_LINKS = 40
"""Links followed for one path before it counts as a loop: Linux's own number (path_resolution(7))."""

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_SYS_OPENAT2 = 437
"""The same on every Linux architecture that Python runs on but alpha (openat2(2) came with the unified numbering)."""

_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_UNDECIDED = {errno.EXDEV, errno.EAGAIN, errno.ELOOP, errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG}
"""What leaves the answer to the walk: a way out or an absolute link, a race, a loop or magic link, no such call here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """An open workspace folder.

    Attributes:
        fd: Its handle, owned by the Workspace that made it.
        aliases: Its absolute spellings, as named and as it really is: where an absolute link may lead.
        kernel: Try openat2 first. False only where a test wants the walk.
    """

    fd: int
    aliases: tuple[str, ...]
    kernel: bool


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def open_folder(root: Root, names: tuple[str, ...], *, create: bool = False) -> int:
    """A handle of the folder that `names` lead to; the caller closes it.

    Args:
        root: Where to start, and what not to leave.
        names: Components; `..` is allowed and judged.
        create: Make the folders that are missing.

    Raises:
        PathEscapeError: The way leads out of the root.
        PathError: Too many links, or too deep.
        OSError: The operating system's own refusal (missing, not a folder, not permitted).
    """
    if not names:
        return os.open(".", DIRECTORY, dir_fd=root.fd)
    if root.kernel:
        try:
            return open_beneath(root.fd, "/".join(names))
        except OSError as error:
            missing = create and error.errno == errno.ENOENT
            if not missing and error.errno not in _UNDECIDED:
                raise
    return _walk(root, names, create=create)


def open_beneath(root_fd: int, path: str) -> int:
    """openat2(2) for a folder, resolved beneath `root_fd`.

    Raises:
        OSError: With the call's errno; ENOSYS where the system has no such call.
    """
    if _libc is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _OpenHow(DIRECTORY, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    fd: int = _libc.syscall(_SYS_OPENAT2, root_fd, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def read_link(folder: int, name: str) -> str | None:
    """Where the link `name` points, or None when it is no link or is not there."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def link_names(root: Root, base: tuple[str, ...], target: str) -> tuple[str, ...]:
    """The components that a link with this target stands for, when it lies in the folder `base`.

    Raises:
        PathEscapeError: It is absolute and leads elsewhere.
    """
    if target.startswith("/"):
        return split(below(target, root.aliases))
    return base + split(target)


def _walk(root: Root, names: tuple[str, ...], *, create: bool) -> int:
    pending = list(reversed(names))
    opened = [os.dup(root.fd)]
    links = 0
    try:
        while pending:
            name = pending.pop()
            if name == "..":
                _step_back(opened)
                continue
            # A folder is never made on the way to a `..`: a path that is refused in the end must leave nothing behind.
            target = _step_into(opened, name, create=create and ".." not in pending)
            if target is not None:
                links += 1
                _check_length("/".join(names), links, len(opened) + len(pending))
                _follow(root, opened, pending, target)
        return opened.pop()
    finally:
        for fd in opened:
            os.close(fd)


def _step_back(opened: list[int]) -> None:
    if len(opened) == 1:
        raise PathEscapeError
    os.close(opened.pop())


def _step_into(opened: list[int], name: str, *, create: bool) -> str | None:
    """Opens one more folder, or gives the target when `name` is a link."""
    here = opened[-1]
    try:
        opened.append(_enter(here, name, create=create))
    except OSError as error:
        # A link met with O_NOFOLLOW|O_DIRECTORY is ENOTDIR on Linux and ELOOP elsewhere.
        target = read_link(here, name) if error.errno in {errno.ENOTDIR, errno.ELOOP} else None
        if target is None:
            raise
        return target
    return None


def _enter(here: int, name: str, *, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=here)
    return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=here)


def _follow(root: Root, opened: list[int], pending: list[str], target: str) -> None:
    if target.startswith("/"):
        target = below(target, root.aliases)
        while len(opened) > 1:
            os.close(opened.pop())
    pending.extend(reversed(split(target)))


def _check_length(path: str, links: int, depth: int) -> None:
    if links > MAX_LINKS:
        raise PathError(path, "too many symbolic links, or a loop of them")
    if depth > 2 * MAX_DEPTH:
        raise PathError(path, "the path is too deep once its symbolic links are followed")
