"""A folder that turns into a link and back while it is used: what was checked is what is opened."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nodes.workspace.errors import WorkspaceError
from nodes.workspace.patterns import compiled
from nodes.workspace.searching import search
from nodes.workspace.workspace import Workspace
from tests.workspace.conftest import CANARY, Ground, names

SECONDS = 1.5


@contextmanager
def swapping(ground: Ground, what: str) -> Iterator[list[int]]:
    """A thread that exchanges a real folder or file with a link to the outside, as fast as it can; counts its turns."""
    real, link, used = ground.root / f"{what}-real", ground.root / f"{what}-link", ground.root / what
    if what == "folder":
        real.mkdir()
        (real / "secret").write_text("harmless")
        link.symlink_to(ground.outside)
    else:
        real.write_text("harmless")
        link.symlink_to(ground.outside / "secret")
    stop, turns = threading.Event(), [0]

    def swap() -> None:
        while not stop.is_set():
            for one in (real, link):
                try:
                    one.rename(used)
                except OSError:  # a write made the folder anew while it was away
                    shutil.rmtree(used, ignore_errors=True)
                else:
                    used.rename(one)
            turns[0] += 1

    thread = threading.Thread(target=swap, name="swapper")
    thread.start()
    try:
        yield turns
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("way", ["kernel", "walk"])
@pytest.mark.parametrize(("what", "path"), [("folder", "folder/secret"), ("file", "file")])
def test_swapping_a_folder_or_a_file_for_a_link_never_leads_out(ground: Ground, way: str, what: str, path: str) -> None:
    """S60 and the races between check and open: reads, searches and writes against a swapping thread."""
    before = (ground.outside / "secret").stat()
    seen: dict[str, int] = {"read": 0, "refused": 0}
    until = time.monotonic() + SECONDS
    with swapping(ground, what) as turns, Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        while time.monotonic() < until:
            try:
                data = workspace.read_bytes(path)
                assert CANARY.encode() not in data
                seen["read"] += 1
                assert not search(workspace, compiled(CANARY), what if what == "folder" else "", "", ignored=True).matches
                workspace.write_bytes(f"{path}-new" if what == "folder" else path, b"harmless")
            except WorkspaceError:
                seen["refused"] += 1
    after = (ground.outside / "secret").stat()
    assert turns[0] > 100
    assert seen["refused"]
    assert names(ground.outside) == ["secret"]
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
