"""Generated trees and paths: whatever the links say, nothing outside is read, listed, made, changed or removed."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodes.workspace.errors import WorkspaceError
from nodes.workspace.patterns import compiled
from nodes.workspace.searching import search
from nodes.workspace.walking import Walk
from nodes.workspace.workspace import Workspace
from tests.workspace.conftest import CANARY, names

NAMES = st.sampled_from(["a", "b", "c", "..", ".", "é", "out"])
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
TARGETS = st.one_of(
    PATHS,
    st.sampled_from(
        ["@ROOT", "@ROOT/a", "@ROOT/a/b", "@OUT", "@OUT/secret", "@OUT/missing", "../outside", "../../outside/secret"]
    ),
    st.sampled_from(["/proc/self/cwd", "/proc/self/root", "/", "@ROOT/../outside", "../inside/a"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("link"), PATHS, TARGETS),
        st.tuples(st.just("folder"), PATHS, st.just("")),
        st.tuples(st.just("file"), PATHS, st.just("")),
    ),
    max_size=12,
)
ASKED = st.lists(st.one_of(PATHS, TARGETS), min_size=1, max_size=6)


def build(root: Path, outside: Path, steps: list[tuple[str, str, str]]) -> None:
    """Lays out what can be laid out inside the root; the rest of the steps is passed over."""
    for kind, path, target in steps:
        place = root / path
        if not place.parent.is_dir() or not place.parent.resolve().is_relative_to(root.resolve()) or os.path.lexists(place):
            continue
        if kind == "link":
            place.symlink_to(placed(target, root, outside))
        elif kind == "folder":
            place.mkdir()
        else:
            place.write_text(f"inside {path}")


def placed(text: str, root: Path, outside: Path) -> str:
    return text.replace("@ROOT", str(root)).replace("@OUT", str(outside))


def state_of(folder: Path) -> list[tuple[str, int, int, int, bytes]]:
    """Names, inodes, times and content of everything outside."""
    found = []
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found.append((str(path), status.st_ino, status.st_mtime_ns, status.st_mode, content))
    return found


def exercise(workspace: Workspace, path: str, root: Path) -> None:
    try:
        with workspace.open_file(path) as file:
            inside = {entry.stat().st_ino for entry in root.rglob("*") if not entry.is_symlink()}
            assert os.fstat(file.fileno()).st_ino in inside
            assert CANARY.encode() not in file.read()
    except WorkspaceError:
        pass
    with suppress(WorkspaceError):
        workspace.write_bytes(path, b"written")
    try:
        entries = list(Walk(workspace=workspace, depth=9, seconds=10, ignored=True).entries(path if path != "." else ""))
        assert not any("secret" in entry.path for entry in entries)
        assert not search(workspace, compiled(CANARY), path, "", ignored=True).matches
    except WorkspaceError:
        pass


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, asked=ASKED, way=st.sampled_from(["kernel", "walk"]))
def test_no_tree_and_no_path_leads_outside(steps: list[tuple[str, str, str]], asked: list[str], way: str) -> None:
    """S60, S71, S72: checked by a canary and by inode."""
    with tempfile.TemporaryDirectory() as folder:
        root, outside = Path(folder, "inside"), Path(folder, "outside")
        root.mkdir()
        outside.mkdir()
        (outside / "secret").write_text(CANARY)
        build(root, outside, steps)
        before, beside = state_of(outside), names(Path(folder))
        with Workspace(str(root), kernel=way == "kernel") as workspace:
            for path in asked:
                exercise(workspace, placed(path, root, outside), root)
        assert state_of(outside) == before
        assert names(Path(folder)) == beside


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, asked=ASKED)
def test_the_kernel_and_the_walk_give_the_same_answer(steps: list[tuple[str, str, str]], asked: list[str]) -> None:
    """What stands in for openat2 is neither laxer nor stricter than it."""
    with tempfile.TemporaryDirectory() as folder:
        root, outside = Path(folder, "inside"), Path(folder, "outside")
        root.mkdir()
        outside.mkdir()
        (outside / "secret").write_text(CANARY)
        build(root, outside, steps)
        for path in asked:
            answers = [answer(root, placed(path, root, outside), way=way) for way in ("kernel", "walk")]
            assert answers[0] == answers[1]


def answer(root: Path, path: str, *, way: str) -> str:
    with Workspace(str(root), kernel=way == "kernel") as workspace:
        try:
            return workspace.read_bytes(path).decode()
        except WorkspaceError as error:
            return str(error)


@settings(max_examples=80, deadline=None)
@given(path=st.text(max_size=40))
def test_any_text_is_a_path_or_a_refusal(path: str) -> None:
    """S71: never another kind of error."""
    with tempfile.TemporaryDirectory() as folder, Workspace(folder) as workspace:
        try:
            workspace.write_bytes(path, b"x")
        except WorkspaceError as error:
            said = str(error)
        else:
            said = ""
        assert bool(names(Path(folder))) is not bool(said)
        assert len(said) < 1000
