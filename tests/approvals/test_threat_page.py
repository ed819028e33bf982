"""The threat model is no promise but a list of what tests show."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.tree import ROOT

PAGE = ROOT / "graphs" / "threat-model.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """The lines of the page's tables, without their heads."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith("|---") and not line.endswith("| shown by |")]


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_line_of_the_page_names_tests_that_exist(row: str) -> None:
    """Issue, threat model: each line with the test that shows it."""
    named = NAMED.findall(row.split("|")[3])
    assert named
    missing = [f"{path}::{name}" for path, name in named if name not in functions_of(path)]
    assert not missing


def test_the_page_is_long_enough_to_be_one() -> None:
    """A page whose tables were not found would pass every other check."""
    assert len(rows()) > 30
