"""Every row of the approval and cancel contract is proven by a test that says so."""

from __future__ import annotations

import ast
import re

from tests.architecture.tree import sources

ROWS = (
    "EVO-1",
    "EVO-2",
    "EVO-3",
    "EVO-4",
    "EVO-5",
    "EVO-6",
    "EVO-7",
    "EVO-8",
    "EVO-9",
    "EVO-10",
    "EVO-11",
    "EVO-12",
    "EVO-13",
    "EVO-14",
    "EVO-15",
    "EVO-16",
    "EVO-17",
    "EVO-18",
    "EVO-19",
    "EVO-20",
    "EVO-21",
    "EVO-22",
    "EVO-23",
)


def test_every_row_of_the_contract_is_named_by_a_test() -> None:
    named = {
        row
        for _, tree in sources("tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for row in rows_in(ast.get_docstring(node) or "")
    }
    assert [row for row in ROWS if row not in named] == []


def rows_in(text: str) -> set[str]:
    """The rows that a docstring names; `EVO-5 to EVO-8` names four."""
    found = set(re.findall(r"EVO-\d+", text))
    for first, last in re.findall(r"EVO-(\d+) to EVO-(\d+)", text):
        found |= {f"EVO-{number}" for number in range(int(first), int(last) + 1)}
    return found
