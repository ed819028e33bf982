"""The repository as the tests of structure see it: its tracked files and the syntax trees of its packages."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("graphs", "nodes", "checkpoints")


@cache
def repository_files() -> tuple[str, ...]:
    """Every file that git tracks, or would track, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(sorted(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()))


@cache
def sources(*folders: str) -> tuple[tuple[str, ast.Module], ...]:
    """Name and syntax tree of every Python file under the folders."""
    names = [name for name in repository_files() if name.endswith(".py") and name.split("/")[0] in folders]
    return tuple((name, ast.parse((ROOT / name).read_text(), name)) for name in names)


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a tree imports; a package's own relative imports are not used here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
