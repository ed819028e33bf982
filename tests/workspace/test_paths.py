"""Paths that lead out are refused with one sentence; paths that stay in work, links included."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodes.tools.tool import ToolResult
from nodes.workspace.errors import PathError, PathEscapeError, WorkspaceError
from nodes.workspace.handles import DIRECTORY, open_beneath
from nodes.workspace.workspace import Workspace
from tests.workspace.conftest import CANARY, Ground, names

pytestmark = pytest.mark.anyio
ESCAPES = "Path escapes the workspace boundary"
Call = Callable[..., Awaitable[ToolResult]]


@pytest.fixture(params=["kernel", "walk"])
def way(request: pytest.FixtureRequest) -> str:
    """Both ways of opening: openat2 and the walk that stands in for it."""
    return str(request.param)


def layout(ground: Ground) -> None:
    root = ground.root
    (root / "out").symlink_to(ground.outside)
    (root / "out-file").symlink_to(ground.outside / "secret")
    (root / "dangling-out").symlink_to(ground.outside / "nothing")
    (root / "up").symlink_to("../outside/secret")
    (root / "dangling-in").symlink_to("later.txt")
    (root / "in").symlink_to("sub/a.txt")
    (root / "in-absolute").symlink_to(root / "sub")
    (root / "two-steps").symlink_to("in-absolute/a.txt")
    (root / "sub" / "back").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "proc").symlink_to("/proc/self/root")
    os.mkfifo(root / "pipe")


OUTSIDE = [
    "..",
    "../outside/secret",
    "sub/../../outside/secret",
    "missing/../../outside/secret",
    "out/secret",
    "out",
    "out-file",
    "dangling-out",
    "up",
    "sub/back/out/secret",
    "sub/back/../outside/secret",
    "proc/etc/hostname",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "~/x",
    "~",
    "C:\\x",
    "c:/X",
    "\\\\srv\\share",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_whatever_leads_out_is_refused_for_reading_listing_and_writing(ground: Ground, way: str, path: str) -> None:
    """S60, S71, S72, BOT-14."""
    layout(ground)
    before, inside = sorted(ground.outside.rglob("*")), sorted(ground.root.rglob("*"))
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        for use in (workspace.open_file, workspace.digest, lambda path: workspace.write_bytes(path, b"x")):
            with pytest.raises(PathEscapeError, match=f"^{ESCAPES}$"):
                use(path)
        with pytest.raises(WorkspaceError), workspace.folder(path):
            pass
    assert sorted(ground.outside.rglob("*")) == before
    assert sorted(ground.root.rglob("*")) == inside
    assert (ground.outside / "secret").read_text() == CANARY


@pytest.mark.parametrize(
    "path", ["sub/a.txt", "in", "in-absolute/a.txt", "two-steps", "sub/back/sub/a.txt", "sub/../in", "./sub//a.txt"]
)
def test_links_and_dots_that_stay_inside_work(ground: Ground, way: str, path: str) -> None:
    """S60."""
    layout(ground)
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        assert workspace.read_bytes(path) == b"one\ntwo\nthree\n"
        workspace.write_bytes(path, b"new")
    assert (ground.root / "sub" / "a.txt").read_bytes() == b"new"
    assert (ground.root / "in").is_symlink()


def test_an_absolute_path_below_the_workspace_means_the_file_there(ground: Ground, way: str) -> None:
    """S72: models copy what pwd printed; the rest of the path is opened under the same checks."""
    layout(ground)
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        assert workspace.read_bytes(str(ground.root / "sub" / "a.txt")).startswith(b"one")
        with pytest.raises(PathEscapeError):
            workspace.read_bytes(str(ground.root / "out" / "secret"))
        with pytest.raises(PathEscapeError):
            workspace.read_bytes(str(ground.root) + "-twin/secret")


def test_a_workspace_that_is_itself_a_link_works(ground: Ground, way: str, tmp_path: Path) -> None:
    """S60: as /tmp is on macOS."""
    layout(ground)
    alias = tmp_path / "alias"
    alias.symlink_to(ground.root)
    with Workspace(str(alias), kernel=way == "kernel") as workspace:
        assert workspace.read_bytes("in-absolute/a.txt") == workspace.read_bytes(str(alias / "in"))
        assert workspace.read_bytes(str(ground.root / "in")) == workspace.read_bytes("in")
        with pytest.raises(PathEscapeError):
            workspace.read_bytes("up")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "an empty path names nothing"),
        ("  ", "an empty path names nothing"),
        ("a\0b", "a path cannot hold a NUL character"),
        ("x" * 5000, "the path is too long (5000 bytes; at most 4095)"),
        ("x" * 256, "a name in the path is too long (256 bytes; at most 255)"),
        ("a/" * 200 + "b", "the path is too deep (201 components; at most 128)"),
        ("\ud800", "a path must be text that UTF-8 can hold"),
        ("loop", "too many symbolic links, or a loop of them"),
        ("loop/x", "too many symbolic links, or a loop of them"),
        ("pipe", "it is a named pipe, not a regular file"),
        ("sub", "it is a folder, not a regular file"),
        (".", "it is a folder, not a regular file"),
        ("sub/a.txt/x", "not a directory"),
    ],
)
def test_paths_that_cannot_be_used_say_precisely_why(ground: Ground, way: str, path: str, problem: str) -> None:
    """S71; a pipe without a writer would block whoever opens it."""
    layout(ground)
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        for use in (workspace.open_file, lambda path: workspace.write_bytes(path, b"x")):
            with pytest.raises(PathError) as caught:
                use(path)
            assert caught.value.problem == problem
            assert len(str(caught.value)) < 600


def test_a_socket_and_a_device_are_refused_without_being_opened(ground: Ground, way: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(ground.root / "sock"))
        with Workspace(str(ground.root), kernel=way == "kernel") as workspace, pytest.raises(PathError, match="a socket"):
            workspace.open_file("sock")
    with Workspace("/dev", kernel=way == "kernel") as devices, pytest.raises(PathError, match="a device"):
        devices.open_file("null")


def test_a_dangling_link_that_stays_inside_names_the_file_to_be(ground: Ground, way: str) -> None:
    layout(ground)
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        assert workspace.digest("dangling-in") is None
        workspace.write_bytes("dangling-in", b"x")
        assert workspace.resolved("dangling-in") == "later.txt"
    assert (ground.root / "later.txt").read_bytes() == b"x"


def test_missing_folders_are_made_inside_and_never_through_a_link_out(ground: Ground, way: str) -> None:
    layout(ground)
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        workspace.write_bytes("new/deep/er/file", b"x")
        workspace.write_bytes("in-absolute/made/file", b"x")
        with pytest.raises(PathEscapeError):
            workspace.write_bytes("out/made/file", b"x")
    assert (ground.root / "sub" / "made" / "file").read_bytes() == b"x"
    assert not (ground.outside / "made").exists()


@pytest.mark.parametrize(
    "name", ["README.md", "readme.md", "İ.md", "Strasse", "STRASSE", "CON", "a.", "\u00e9", "e\u0301", " x ", "-rf"]
)
def test_a_file_is_made_with_the_name_that_was_given(ground: Ground, way: str, name: str) -> None:
    """S73: on POSIX every spelling is a file of its own. Windows, which reserves names, is not supported."""
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        workspace.write_bytes(name, b"x")
    assert name in names(ground.root)


def test_twins_in_case_and_in_normal_form_stay_apart(ground: Ground, way: str) -> None:
    """S73, on a file system that keeps them apart, as Linux's do."""
    with Workspace(str(ground.root), kernel=way == "kernel") as workspace:
        for name in ("README.md", "readme.md", "\u00e9", "e\u0301"):
            workspace.write_bytes(name, name.encode())
        for name in ("README.md", "readme.md", "\u00e9", "e\u0301"):
            assert workspace.read_bytes(name) == name.encode()


def test_the_kernel_itself_refuses_the_way_out(ground: Ground) -> None:
    """openat2 answers where it exists; elsewhere the call says so and the walk decides."""
    layout(ground)
    root = os.open(ground.root, DIRECTORY)
    try:
        os.close(open_beneath(root, "sub"))
        for path in ("..", "out", "in-absolute", "proc"):
            with pytest.raises(OSError, match=r"."):
                open_beneath(root, path)
    finally:
        os.close(root)


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "list_files", "search_files"])
@pytest.mark.parametrize(
    "path", ["..", "a/../../x", "~/x", "/etc/passwd", "a\0b", "x" * 5000, "", "out/secret", "out-file", "proc/etc"]
)
async def test_every_tool_answers_a_bad_path_with_a_bounded_observation(
    ground: Ground, call: Call, tool: str, path: str
) -> None:
    """S71, BOT-14: a refusal is a result for the model, the run goes on."""
    layout(ground)
    extra = {
        "write_file": {"content": "x"},
        "edit_file": {"old_text": "a", "new_text": "b"},
        "search_files": {"pattern": CANARY},
    }
    result = await call(tool, path=path, **extra.get(tool, {}))
    assert result.is_error
    assert len(result.content) < 1000
    assert CANARY not in result.content
    if path and "\0" not in path and len(path) < 4096:
        assert result.content == ESCAPES
