"""Writes happen whole or not at all, keep the mode, and say by digest whether they happened."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.workspace.changes import FileChangedError, Settlement, apply, plan_edit, plan_write, settle
from nodes.workspace.diffing import unified_diff
from nodes.workspace.errors import PathError
from nodes.workspace.workspace import Workspace
from tests.workspace.conftest import Ground, names


def test_a_replaced_file_keeps_its_mode_and_a_new_one_obeys_the_umask(ground: Ground) -> None:
    script = ground.root / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    with Workspace(str(ground.root)) as workspace:
        workspace.write_bytes("run.sh", b"new")
        workspace.write_bytes("fresh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((ground.root / "fresh").stat().st_mode) == 0o666 & ~umask


def test_a_read_only_file_is_not_replaced(ground: Ground) -> None:
    (ground.root / "fixed").write_text("old")
    (ground.root / "fixed").chmod(0o444)
    with Workspace(str(ground.root)) as workspace, pytest.raises(PathError, match="read-only"):
        workspace.write_bytes("fixed", b"new")
    assert (ground.root / "fixed").read_text() == "old"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_aside(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with Workspace(str(ground.root)) as workspace, pytest.raises(PathError, match="no space left on device"):
        workspace.write_bytes("sub/a.txt", b"new")
    assert (ground.root / "sub" / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert names(ground.root / "sub") == ["a.txt"]


def test_a_hard_link_to_a_file_outside_is_cut_by_a_write(ground: Ground) -> None:
    os.link(ground.outside / "secret", ground.root / "linked")
    before = (ground.outside / "secret").stat()
    with Workspace(str(ground.root)) as workspace:
        workspace.write_bytes("linked", b"new")
    after = (ground.outside / "secret").stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)


@pytest.mark.parametrize("killed_at", ["before", "aside", "after"])
def test_a_write_whose_process_is_killed_settles_itself(ground: Ground, killed_at: str) -> None:
    """A kill before, in the middle of, and after the rename: applied or untouched, never half."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from nodes.workspace import atomic
from nodes.workspace.workspace import Workspace
die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
real = os.replace
if {killed_at!r} == "before": atomic.os.open = die
if {killed_at!r} == "aside": atomic.os.replace = die
if {killed_at!r} == "after": atomic.os.replace = lambda *a, **k: (real(*a, **k), die())
with Workspace({str(ground.root)!r}) as workspace: workspace.write_bytes("sub/a.txt", b"new")
"""
    with Workspace(str(ground.root)) as workspace:
        change = plan_write(workspace, "sub/a.txt", "new")
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
        found = settle(workspace, change.path, change.before, change.after)
        assert found is (Settlement.APPLIED if killed_at == "after" else Settlement.UNTOUCHED)
        assert workspace.already_written("sub/a.txt", "new") is (killed_at == "after")
        apply(workspace, change)
        assert settle(workspace, change.path, change.before, change.after) is Settlement.APPLIED
    assert (ground.root / "sub" / "a.txt").read_text() == "new"


def test_an_edit_that_happened_is_recognised_although_its_text_is_gone(ground: Ground) -> None:
    with Workspace(str(ground.root)) as workspace:
        change = plan_edit(workspace, "sub/a.txt", "two", "2", every=False)
        apply(workspace, change)
        assert settle(workspace, change.path, change.before, change.after) is Settlement.APPLIED
        apply(workspace, change)
        workspace.write_bytes("sub/a.txt", b"somebody else")
        assert settle(workspace, change.path, change.before, change.after) is Settlement.CHANGED
        with pytest.raises(FileChangedError, match="changed by somebody else"):
            apply(workspace, change)
    assert (ground.root / "sub" / "a.txt").read_text() == "somebody else"


def test_a_plan_names_the_file_that_a_link_leads_to(ground: Ground) -> None:
    (ground.root / "notes").symlink_to("sub/a.txt")
    with Workspace(str(ground.root)) as workspace:
        change = plan_write(workspace, "notes", "x\n")
    assert change.resolved == "sub/a.txt"
    assert change.diff.startswith("--- a/sub/a.txt\n+++ b/sub/a.txt\n")


lines = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12).map("\n".join)


@given(old=lines, new=lines)
def test_a_diff_applied_to_the_old_text_gives_the_new_one(old: str, new: str) -> None:
    assert patched(old.encode(), unified_diff("f", old.encode(), new.encode())) == new.encode()


def patched(old: bytes, diff: str) -> bytes:
    """Applies our own diff, as patch(1) would."""
    if not diff:
        return old
    source = old.decode().split("\n")
    ended = source[-1] == ""
    source = source[:-1] if ended else source
    result: list[str] = []
    at, no_newline = 0, {"new": not ended}
    last = ""
    for line in diff.split("\n")[2:-1]:
        if line.startswith("@@"):
            start, length = map(int, line.split()[1][1:].split(","))
            start = start - 1 if length else start
            result += source[at:start]
            at = start
        elif line.startswith("\\"):
            if last in " +":
                no_newline["new"] = True
        else:
            last = line[0]
            if last in " -":
                assert source[at] == line[1:]
                at += 1
                if at == len(source):
                    no_newline["new"] = False
            if last in " +":
                result.append(line[1:])
    result += source[at:]
    return ("\n".join(result) + ("" if no_newline["new"] or not result else "\n")).encode()


def test_a_diff_of_a_large_rewrite_stays_cheap() -> None:
    old = "\n".join(str(number % 7) for number in range(200_000)).encode()
    new = "\n".join(str(number % 5) for number in range(200_000)).encode()
    assert unified_diff("f", old, new).count("\n") > 200_000
