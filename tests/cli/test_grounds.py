"""A workspace and the store lie apart, or nothing starts (the store inside the home folder is the usual mistake)."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphs.grounds import StoreInWorkspaceError, keep_apart
from tests.cli.command import Checkrein

pytestmark = pytest.mark.anyio


def apart(workspace: Path, *kept: Path) -> bool:
    try:
        keep_apart(workspace, kept)
    except StoreInWorkspaceError:
        return False
    return True


def test_a_workspace_holds_no_part_of_what_is_kept_and_lies_in_none(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    state = home / ".local" / "state" / "checkrein"
    for folder in (state / "outputs", project):
        folder.mkdir(parents=True)
    assert apart(project, state, tmp_path / "store.db")
    assert apart(home / ".local" / "state" / "checkrein-sandboxes" / "one", state), "beside is not inside"
    assert not apart(home, state)
    assert not apart(state, state)
    assert not apart(state / "outputs", state)
    assert not apart(project, state, project / "not-made-yet" / "store.db")
    assert not apart(Path("/"), state)


def test_links_are_followed_and_count_themselves(tmp_path: Path) -> None:
    """Who may replace a link on the way to the store decides where the store is."""
    state, project, elsewhere = tmp_path / "state", tmp_path / "project", tmp_path / "elsewhere"
    for folder in (state, project, elsewhere):
        folder.mkdir()
    (project / "link").symlink_to(state)
    assert not apart(project, project / "link" / "store.db"), "it leads out, and lies inside"
    assert not apart(project, project / "link")
    (elsewhere / "in").symlink_to(project / "link")
    assert not apart(project, elsewhere / "in" / "store.db"), "a link to a link inside"
    (elsewhere / "workspace").symlink_to(tmp_path)
    assert not apart(elsewhere / "workspace", state), "the workspace is where its link leads"
    (elsewhere / "loop").symlink_to(elsewhere / "loop")
    assert apart(project, elsewhere / "loop")


async def test_a_run_in_such_a_workspace_is_refused_before_anything_starts(checkrein: Checkrein, script: str) -> None:
    """The home folder with the state folder in it, a store in the workspace, a workspace in the state folder."""
    inside = str(checkrein.workspace / "store.db")
    (checkrein.home / "outputs").mkdir()
    for words in (
        ("--workspace", str(checkrein.home.parent)),
        ("--store", inside),
        ("--workspace", str(checkrein.home / "outputs")),
    ):
        refused = await checkrein("run", "look", "--script", script, "--yolo", *words)
        assert (refused.status, refused.last["code"]) == (2, "store_in_workspace"), words
        assert "--store" in refused.last["hint"]
        assert refused.of_kind("run_started") == []
    assert (await checkrein("list")).lines == []
    assert (await checkrein("doctor", "--workspace", str(checkrein.home.parent))).status == 1
