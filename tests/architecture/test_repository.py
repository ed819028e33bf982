"""What the repository and the wheel hold."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.architecture.tree import ROOMS, ROOT, repository_files

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "LICENSE",
    "README.md",
    "checkpoints",
    "graphs",
    "langgraph.json",
    "nodes",
    "pyproject.toml",
    "tests",
}


def test_the_top_level_is_the_three_rooms_and_their_card() -> None:
    assert {name.split("/")[0] for name in repository_files()} == TOP_LEVEL


def test_every_place_that_langgraph_json_names_is_there() -> None:
    card = json.loads((ROOT / "langgraph.json").read_text())
    graphs = [graph["path"].replace(":", ".") for graph in card["graphs"].values()]
    for place in [*graphs, card["checkpointer"]["path"]]:
        module, _, name = place.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name)), place


def test_the_wheel_holds_every_file_of_the_rooms(tmp_path: Path) -> None:
    """What runs from the tree runs when installed: SQL, type marker and scripts included."""
    subprocess.run(
        [sys.executable, "-c", f"import hatchling.build; hatchling.build.build_wheel({str(tmp_path)!r})"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("checkrein-*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {name for name in repository_files() if name.split("/")[0] in ROOMS}
    assert {f"{room}/py.typed" for room in ROOMS} <= packed
    assert any(name.endswith(".sql") for name in packed)
