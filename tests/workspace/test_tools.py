"""What the file tools give: pages, listings, matches and diffs, all bounded, all saying what they left out."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nodes.tools import files
from nodes.tools.tool import Effect, ToolResult
from nodes.workspace.bounds import RESULT_BYTES
from nodes.workspace.changes import plan_write
from nodes.workspace.errors import PathError
from nodes.workspace.workspace import Workspace
from tests.workspace.conftest import CANARY, Ground

pytestmark = pytest.mark.anyio
Call = Callable[..., Coroutine[Any, Any, ToolResult]]


def test_tools_that_write_are_file_effects_with_a_planner_and_the_others_have_no_effect() -> None:
    effects = {tool.name: tool.effect for tool in files.file_tools()}
    assert {name for name, effect in effects.items() if effect is Effect.FILE} == set(files.planners())
    assert {effect for name, effect in effects.items() if name not in files.planners()} == {Effect.NONE}


async def test_a_page_has_numbered_lines_and_says_where_to_go_on(ground: Ground, call: Call) -> None:
    (ground.root / "long").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    page = await call("read_file", path="long", start_line=50, line_count=2)
    assert page.content == "    50\tline 50\n    51\tline 51\n[more lines follow; go on with start_line=52]"
    assert (await call("read_file", path="long", start_line=100)).content == "   100\tline 100"
    beyond = await call("read_file", path="long", start_line=500)
    assert beyond.is_error
    assert beyond.content == "The file has fewer than 500 lines"


async def test_an_empty_file_and_a_missing_one_are_told_apart(ground: Ground, call: Call) -> None:
    (ground.root / "empty").touch()
    assert (await call("read_file", path="empty")).content == "(the file is empty)"
    missing = await call("read_file", path="nothing")
    assert (missing.is_error, missing.content) == (True, "nothing: no such file or directory")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("price 5 €\n".encode(), "     1\tprice 5 €"),
        (b"bad \xff byte\n", "     1\tbad \ufffd byte"),
        (b"half \xe2\x82\n", "     1\thalf \ufffd"),
        ("a\u2028b\x85c\n".encode(), "     1\ta\u2028b\x85c"),
        (b"dos\r\nline\r\n", "     1\tdos\n     2\tline\n[lines end with CR LF]"),
    ],
)
async def test_text_comes_as_it_is_with_one_mark_for_a_broken_byte(ground: Ground, call: Call, data: bytes, shown: str) -> None:
    """S41, S75: lines end with LF alone."""
    (ground.root / "f").write_bytes(data)
    assert (await call("read_file", path="f")).content == shown


async def test_a_binary_file_is_named_as_such_and_not_shown(ground: Ground, call: Call) -> None:
    """S70."""
    (ground.root / "b").write_bytes(b"abc\0def" * 1000)
    result = await call("read_file", path="b")
    assert (result.is_error, result.content) == (True, "b: binary file, not shown")


@pytest.mark.parametrize("data", [b"x" * 2_000_000, "€".encode() * 700_000, b"y\n" * 100_000, (b"z" * 3000 + b"\n") * 2000])
async def test_no_page_is_larger_than_its_bound_and_a_cut_says_so(ground: Ground, call: Call, data: bytes) -> None:
    """S70, HER-14: a 2 MB line, 100,000 tiny lines; no character is cut in two."""
    (ground.root / "huge").write_bytes(data)
    result = await call("read_file", path="huge", line_count=10_000)
    assert len(result.content.encode()) < RESULT_BYTES + 200
    assert "\ufffd" not in result.content
    assert "cut here" in result.content or "more lines follow" in result.content
    assert len(json.dumps(result.content)) < 100_000


async def test_an_edit_replaces_the_only_match_and_shows_the_diff(ground: Ground, call: Call) -> None:
    result = await call("edit_file", path="sub/a.txt", old_text="two", new_text="2")
    assert not result.is_error
    assert (ground.root / "sub" / "a.txt").read_text() == "one\n2\nthree\n"
    assert result.details["diff"] == "--- a/sub/a.txt\n+++ b/sub/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("four", "the text to replace is not in the file"),
        ("", "the text to replace is empty"),
        ("o", "the text to replace is there 2 times (lines 1, 2); nothing was changed"),
    ],
)
async def test_an_edit_without_exactly_one_match_says_what_it_found(ground: Ground, call: Call, old: str, said: str) -> None:
    result = await call("edit_file", path="sub/a.txt", old_text=old, new_text="x")
    assert result.is_error
    assert said in result.content
    assert (ground.root / "sub" / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_replace_all_replaces_every_match(ground: Ground, call: Call) -> None:
    await call("edit_file", path="sub/a.txt", old_text="o", new_text="0", replace_all=True)
    assert (ground.root / "sub" / "a.txt").read_text() == "0ne\ntw0\nthree\n"


async def test_an_edit_keeps_foreign_bytes_and_the_line_ends_of_a_file(ground: Ground, call: Call) -> None:
    (ground.root / "latin").write_bytes(b"caf\xe9\r\nplain\r\nend\r\n")
    result = await call("edit_file", path="latin", old_text="plain\nend", new_text="new\nlines")
    assert not result.is_error
    assert (ground.root / "latin").read_bytes() == b"caf\xe9\r\nnew\r\nlines\r\n"


def test_text_that_no_file_can_hold_is_refused(ground: Ground) -> None:
    with Workspace(str(ground.root)) as workspace, pytest.raises(PathError, match="cannot be written as UTF-8"):
        plan_write(workspace, "f", "\ud800")


async def test_listing_leaves_out_what_git_ignores_and_shows_links_as_links(ground: Ground, call: Call) -> None:
    root = ground.root
    (root / ".gitignore").write_text("*.log\nbuild/\n!keep.log\n")
    (root / "sub" / ".gitignore").write_text("secret*\n")
    for name in ("a.log", "keep.log", "sub/secret.txt", "build/x", ".git/config"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    (root / "out").symlink_to(ground.outside)
    listed = (await call("list_files")).content.split("\n")
    assert listed == [".gitignore", "keep.log", f"out -> {ground.outside}", "sub/", "sub/.gitignore", "sub/a.txt"]
    everything = (await call("list_files", include_ignored=True, depth=9)).content
    assert {"a.log", "build/x", ".git/config", "sub/secret.txt"} <= set(everything.split("\n"))
    assert "outside/secret" not in everything


async def test_a_listing_is_bounded_and_says_where_it_was_cut(ground: Ground, call: Call) -> None:
    """S70."""
    for number in range(1200):
        (ground.root / f"file-{number:04}").touch()
    listing = await call("list_files")
    assert "[cut after 1000 entries" in listing.content
    assert len(listing.content.encode()) < RESULT_BYTES + 200


async def test_a_name_cannot_forge_a_line_of_a_listing(ground: Ground, call: Call) -> None:
    """S31."""
    (ground.root / "a\nfake.txt").touch()
    (ground.root / "b\x1b[2K").touch()
    lines = (await call("list_files", depth=1)).content.split("\n")
    assert lines == ["a\\nfake.txt", "b<U+001B>[2K", "sub/"]


async def test_search_finds_lines_by_pattern_name_and_case(ground: Ground, call: Call) -> None:
    (ground.root / "b.py").write_text("def Two():\n    pass\n")
    assert (await call("search_files", pattern="t[wh]")).content == "sub/a.txt:2: two\nsub/a.txt:3: three"
    assert (await call("search_files", pattern="TWO", ignore_case=True, name="*.py")).content == "b.py:1: def Two():"
    assert (await call("search_files", pattern="Two()", literal=True)).content == "b.py:1: def Two():"
    assert (await call("search_files", pattern="two", path="sub/a.txt")).content == "sub/a.txt:2: two"
    assert (await call("search_files", pattern="nothing")).content == "No match in 2 files."


async def test_search_never_follows_a_link_out(ground: Ground, call: Call) -> None:
    """S60."""
    (ground.root / "out").symlink_to(ground.outside)
    (ground.root / "out-file").symlink_to(ground.outside / "secret")
    (ground.root / "hard").mkdir()
    found = await call("search_files", pattern=CANARY, include_ignored=True)
    assert found.content == "No match in 1 files."


async def test_a_hostile_pattern_costs_no_more_than_a_plain_one(ground: Ground, call: Call) -> None:
    (ground.root / "as").write_text("a" * 50_000)
    (ground.root / ".gitignore").write_text("*a" * 100 + "\n")
    (ground.root / ("a" * 200)).touch()
    started = time.monotonic()
    found = await call("search_files", pattern="(a*)*(a|aa)+$(a*)*b")
    assert found.content.startswith("No match")
    assert time.monotonic() - started < 5
    for bad in ("(", "(?=x)", r"(a)\1", "x" * 2000):
        refused = await call("search_files", pattern=bad)
        assert refused.is_error
        assert "RE2" in refused.content


async def test_matches_are_bounded_and_say_so(ground: Ground, call: Call) -> None:
    """S70."""
    (ground.root / "many").write_text("hit\n" * 5000)
    (ground.root / "wide").write_text("x" * 100_000 + "hit" + "y" * 100_000)
    found = await call("search_files", pattern="hit")
    assert "[stopped after 200 matches" in found.content
    assert len(found.content.encode()) < RESULT_BYTES + 200
    wide = await call("search_files", pattern="hit", path="wide")
    assert "hit" in wide.content
    assert len(wide.content) < 500


async def test_a_workspace_that_is_gone_is_an_observation(ground: Ground, call: Call) -> None:
    ground.root.rename(ground.root.with_name("moved"))
    result = await call("list_files")
    assert result.is_error
    assert "the workspace folder cannot be opened" in result.content


async def test_a_cancelled_search_stops_at_its_next_entry(ground: Ground, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2000):
        (ground.root / f"{number}").touch()
    entered, go_on, read = threading.Event(), threading.Event(), []
    real = Workspace.read_bytes

    def watched(self: Workspace, path: str, limit: int = 0) -> bytes:
        entered.set()
        go_on.wait(30)
        read.append(path)
        return real(self, path, limit)

    monkeypatch.setattr(Workspace, "read_bytes", watched)
    task = asyncio.create_task(call("search_files", pattern="x", include_ignored=True))
    await asyncio.to_thread(entered.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(read) == 1


async def test_a_name_that_is_no_text_is_listed_and_passed_over(ground: Ground, call: Call) -> None:
    (ground.root / "bad\udcff").mkdir()
    (ground.root / "bad\udcff" / "two").write_text("two")
    assert "bad<U+DCFF>/" in (await call("list_files")).content
    found = await call("search_files", pattern="two")
    assert found.content == "sub/a.txt:2: two\n[1 files or folders could not be read]"


async def test_a_cancelled_call_ends_only_when_its_write_has_ended(
    ground: Ground, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing lands on the disk after a cancel was reported."""
    entered, go_on = threading.Event(), threading.Event()
    write = Workspace.write_bytes

    def slow(self: Workspace, path: str, data: bytes) -> None:
        entered.set()
        go_on.wait(30)
        write(self, path, data)

    monkeypatch.setattr(Workspace, "write_bytes", slow)
    task = asyncio.create_task(call("write_file", path="slow", content="x"))
    await asyncio.to_thread(entered.wait, 30)
    task.cancel()
    task.cancel()
    _, running = await asyncio.wait([task], timeout=0.05)
    assert running
    assert not (ground.root / "slow").exists()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ground.root / "slow").read_text() == "x"
