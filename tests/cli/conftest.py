"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Checkrein


@pytest.fixture
def checkrein(tmp_path: Path) -> Checkrein:
    return Checkrein(tmp_path)


@pytest.fixture
def script(tmp_path: Path) -> str:
    """One command that asks, and a last word after its result."""
    path = tmp_path / "script.toml"
    path.write_text(ONE_CALL)
    return str(path)


@pytest.fixture
def three_calls(tmp_path: Path) -> str:
    """Three calls in one message."""
    path = tmp_path / "three.toml"
    path.write_text(THREE_CALLS)
    return str(path)


ONE_CALL = """
[[replies]]
when = { tool_results = 0 }
times = 0
text = "I look."
calls = [{ id = "call_1", name = "execute", arguments = { command = "echo ran >> ran.txt; cat ran.txt" } }]

[[replies]]
when = { tool_results = 1 }
times = 0
text = "Done."
"""

THREE_CALLS = """
[[replies]]
when = { tool_results = 0 }
times = 0
calls = [
  { id = "first", name = "execute", arguments = { command = "echo first >> ran.txt" } },
  { id = "second", name = "execute", arguments = { command = "echo second >> ran.txt" } },
  { id = "third", name = "write_file", arguments = { path = "third.txt", content = "as asked\\n" } },
]

[[replies]]
when = { tool_results = 3 }
times = 0
text = "All three are answered."
"""
