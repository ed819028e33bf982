"""Where imports may stand, and what they may name. The arrows between rooms are import-linter's (see pyproject.toml)."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec

from tests.architecture.tree import ROOMS, ROOT, imports_of, sources

BY_NAME = {
    "checkpoints/serializer.py",  # stored values name their types; it makes only those on its list
    "graphs/cli/entry.py",  # help must answer without what a run needs
}
"""The files that may import a module by a name in a string."""


LATE = {
    "checkpoints/backends.py",  # the driver of PostgreSQL is an extra, and slow to load
    "nodes/mcp/opening.py",  # so is the client of MCP servers
}
"""The files that may import inside a function. The linter of the rooms sees these imports too."""


def functions(tree: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def test_no_import_is_hidden_in_a_function() -> None:
    """LangGraph reads annotations at run time, and a cycle hides best inside a function."""
    hidden = {name for name, tree in sources(*ROOMS) for function in functions(tree) if any(imports_of(function))}
    assert hidden == LATE


def test_modules_are_named_in_strings_only_where_it_is_explained() -> None:
    """A module name in a string is an import that no linter sees."""
    by_name = {
        name
        for name, tree in sources(*ROOMS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name)
        and ast.unparse(node) in ("importlib.import_module", "import_module", "__import__")
    }
    assert by_name == BY_NAME


def test_no_import_is_kept_for_the_type_checker_alone() -> None:
    """An import behind TYPE_CHECKING silently loses edges of the graph."""
    kept = {
        f"{name}:{node.lineno}"
        for name, tree in sources(*ROOMS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("TYPE_CHECKING")
    }
    assert not kept


def test_imports_are_absolute() -> None:
    relative = {
        f"{name}:{node.lineno}"
        for name, tree in sources(*ROOMS, "tests")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    }
    assert not relative


def test_the_fork_server_needs_nothing_but_the_standard_library() -> None:
    """It is started with `python -S -E -I`: nothing that is installed may change what it does."""
    outside = {
        f"{name}:{line} {module}"
        for name, tree in sources("nodes")
        if name.startswith("nodes/processes/forkserver/")
        for line, module in imports_of(tree)
        if module.split(".")[0] not in sys.stdlib_module_names and not module.startswith("nodes.processes.forkserver")
    }
    assert not outside


def test_every_library_that_is_imported_is_declared() -> None:
    """A library that is only there because another one brings it is gone when that one changes its mind."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    development = ("dev", "studio", "test")
    optional = [extras[name] for name in extras if name not in development]
    assert not undeclared(ROOMS, declared(project["dependencies"], *optional))
    assert not undeclared(("tests",), declared(project["dependencies"], *optional, extras["studio"], extras["test"]))


def declared(*lists: list[str]) -> set[str]:
    return {canonical(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for items in lists for requirement in items}


def undeclared(folders: tuple[str, ...], known: set[str]) -> set[str]:
    own = {*ROOMS, "tests", *sys.stdlib_module_names}
    return {
        f"{name}:{line} {module}"
        for name, tree in sources(*folders)
        for line, module in imports_of(tree)
        if module.split(".")[0] not in own and distribution_of(module) not in known
    }


@cache
def distribution_of(module: str) -> str:
    """Which distribution a module comes from: by its file, since `langgraph` alone is shared by several."""
    spec = find_spec(module)
    assert spec is not None, module
    return installed_files().get(spec.origin or "", module)


@cache
def installed_files() -> dict[str, str]:
    return {
        str(distribution.locate_file(file)): canonical(distribution.name)
        for distribution in distributions()
        for file in distribution.files or ()
        if file.suffix in (".py", ".so")
    }


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
