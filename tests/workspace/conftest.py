"""A workspace beside a canary that nothing may reach."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodes.tools.catalog import catalog
from nodes.tools.files import file_tools
from nodes.tools.tool import CallSite, ToolResult

CANARY = "canary-8f1c"


@dataclass(frozen=True)
class Ground:
    """The workspace folder, and a file outside it that holds the canary."""

    root: Path
    outside: Path


def names(folder: Path) -> list[str]:
    """What lies in a folder, in order."""
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    root, outside = tmp_path / "work", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text(CANARY)
    (root / "sub").mkdir()
    (root / "sub" / "a.txt").write_text("one\ntwo\nthree\n")
    return Ground(root=root, outside=outside)


def silent(kind: str, /, **payload: Any) -> None:
    """File tools say nothing while they run."""


@pytest.fixture
def call(ground: Ground) -> Callable[..., Coroutine[Any, Any, ToolResult]]:
    """Calls a file tool as the tool node does: arguments validated, the workspace named by its path."""
    tools = catalog(file_tools())

    async def run(name: str, /, **args: Any) -> ToolResult:
        site = CallSite(
            call_id="c",
            thread_id="t",
            run_id="r",
            owner="r",
            session="",
            workspace=str(ground.root),
            deadline=None,
            emit=silent,
        )
        tool = tools[name]
        assert tool.run is not None
        return await tool.run(tool.arguments.model_validate(args), site)

    return run
