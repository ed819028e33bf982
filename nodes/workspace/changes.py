"""Writes that are planned before they are made, so that a person sees the diff and a crash settles itself.

A plan holds the digests of the file before and after. It is what an approval shows and what the journal stores as the
intent. When a call started and no result was recorded, `settle` looks at the file: with the digest of after, it
happened; with the digest of before, it did not and may be made again; with a third, somebody else wrote, and a person
decides. The same digests keep an approved change honest: `apply` refuses when the file is no longer the one that the
diff was made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from checkpoints.errors import ConflictError
from nodes.workspace.bounds import size
from nodes.workspace.diffing import unified_diff
from nodes.workspace.errors import PathError
from nodes.workspace.workspace import Workspace, digest_of, encoded

MAX_DIFF_BYTES = 512 * 1024
_SHOWN_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One planned write.

    Attributes:
        path: As the call named it.
        resolved: Where that leads with every link followed, relative to the workspace; what a person should see and
            rules judge.
        before: SHA-256 of the old content, or None when the file is not there.
        after: SHA-256 of the new content.
        diff: Unified diff; of a huge change a note that says so.
        content: The new content.
    """

    path: str
    resolved: str
    before: str | None
    after: str
    diff: str
    content: bytes

    def record(self) -> dict[str, str | None]:
        """What the journal's intent needs to settle the call later."""
        return {"path": self.path, "before": self.before, "after": self.after}


class Settlement(StrEnum):
    """What the file says about a write whose result was never recorded."""

    APPLIED = "applied"
    UNTOUCHED = "untouched"
    CHANGED = "changed"
    """The file is neither as before nor as planned: a person decides."""


class FileChangedError(ConflictError):
    """The file is not the one that the change was planned, and perhaps approved, for."""

    code = "file_changed"
    hint = "Read the file again and ask for the change anew."

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} was changed by somebody else since this change was planned; nothing was written"


def plan_write(workspace: Workspace, path: str, content: str) -> Change:
    """A whole new content for a file.

    Raises:
        WorkspaceError: The path is refused, or the old file cannot be read.
    """
    return _change(workspace, path, workspace.find_bytes(path), encoded(path, content))


def plan_edit(workspace: Workspace, path: str, old: str, new: str, *, every: bool) -> Change:
    """One exact text of a file replaced by another.

    The match is on bytes, so a file in any encoding keeps the rest of its bytes. In a file whose lines all end with CR LF, a
    text given with LF alone matches and is written with CR LF.

    Args:
        workspace: Where the file is.
        path: The file.
        old: The text to replace; must be there exactly once unless `every`.
        new: What comes in its place.
        every: Replace all occurrences.

    Raises:
        PathError: `old` is empty, equal to `new`, not there, or there more than once.
        WorkspaceError: The path is refused or the file cannot be read.
    """
    before = workspace.read_bytes(path)
    target, replacement = _line_ends_of(before, encoded(path, old), encoded(path, new))
    _check_edit(path, before, target, replacement, every=every)
    return _change(workspace, path, before, before.replace(target, replacement))


def apply(workspace: Workspace, change: Change) -> None:
    """Makes a planned change, or finds it made.

    Raises:
        FileChangedError: The file is no longer as planned. (A write in the instant between this look and the rename is lost.)
        WorkspaceError: It cannot be written.
    """
    state = settle(workspace, change.path, change.before, change.after)
    if state is Settlement.CHANGED:
        raise FileChangedError(change.path)
    if state is Settlement.UNTOUCHED:
        workspace.write_bytes(change.path, change.content)


def settle(workspace: Workspace, path: str, before: str | None, after: str) -> Settlement:
    """Whether a planned change has happened, by digest.

    Raises:
        WorkspaceError: The file cannot be read.
    """
    now = workspace.digest(path)
    if now == after:
        return Settlement.APPLIED
    return Settlement.UNTOUCHED if now == before else Settlement.CHANGED


def _change(workspace: Workspace, path: str, before: bytes | None, after: bytes) -> Change:
    resolved = workspace.resolved(path)
    diff = unified_diff(resolved, before, after)
    if size(diff) > MAX_DIFF_BYTES:
        diff = f"(the diff has {size(diff)} bytes and is not shown; the new content has {len(after)} bytes)\n"
    digest = None if before is None else digest_of(before)
    return Change(path=path, resolved=resolved, before=digest, after=digest_of(after), diff=diff, content=after)


def _line_ends_of(data: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes]:
    crlf = data.count(b"\r\n")
    if not crlf or crlf != data.count(b"\n") or b"\r" in old:
        return old, new
    return old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _check_edit(path: str, data: bytes, old: bytes, new: bytes, *, every: bool) -> None:
    if not old:
        raise PathError(path, "the text to replace is empty", "Give text of the file that is there exactly once.")
    if old == new:
        raise PathError(path, "the text to replace and its replacement are the same")
    count = data.count(old)
    if count == 0:
        raise PathError(
            path, "the text to replace is not in the file", "Read the file and copy the text exactly, blanks included."
        )
    if count > 1 and not every:
        lines = _line_numbers(data, old)
        problem = f"the text to replace is there {count} times (lines {lines}); nothing was changed"
        raise PathError(path, problem, "Give more of the text round it, or set replace_all.")


def _line_numbers(data: bytes, old: bytes) -> str:
    numbers: list[int] = []
    line, at = 1, 0
    while len(numbers) <= _SHOWN_LINES and (found := data.find(old, at)) >= 0:
        line += data.count(b"\n", at, found)
        numbers.append(line)
        line += data.count(b"\n", found, found + len(old))
        at = found + len(old)
    more = ", ..." if len(numbers) > _SHOWN_LINES else ""
    return ", ".join(map(str, numbers[:_SHOWN_LINES])) + more
