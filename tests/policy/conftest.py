"""A home folder with a workspace and a store in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes.policy.paths import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    home = tmp_path / "home" / "me"
    workspace = home / "work"
    (workspace / "sub").mkdir(parents=True)
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (workspace / "etc").symlink_to("/etc")
    (workspace / "a.py").touch()
    (workspace / "checkrein.toml").touch()
    (home / ".state").mkdir()
    (home / ".state" / "store.db").touch()
    protected = (str(home / ".state" / "store.db"), str(workspace / "checkrein.toml"))
    return Ground(workspace=str(workspace), home=str(home), protected=protected)
