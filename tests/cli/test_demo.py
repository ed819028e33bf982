"""`checkrein demo`: the main job, off and on a terminal, with nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Checkrein
from tests.cli.tmux import Tmux

pytestmark = pytest.mark.anyio


def left_behind(checkrein: Checkrein) -> list[str]:
    """Files in the home, the state folder and the temporary folder (one here), and processes of the demo's jobs."""
    folder = checkrein.home.parent
    files = [str(path) for path in folder.rglob("*") if path not in (checkrein.home, checkrein.workspace)]
    return files + [text for text in command_lines() if "ticks.txt" in text or "checkrein-demo-" in text]


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


async def test_the_demo_approves_from_a_second_process_and_leaves_nothing_behind(checkrein: Checkrein) -> None:
    """In a fresh environment without key, endpoint and terminal: run, park, approve elsewhere, cancel, proof."""
    done = await checkrein.cold("demo")
    assert (done.status, done.err) == (0, ""), done.err
    assert "$ wc -w < notes.txt | tee count.txt" in done.out
    assert "checkrein approve" in done.out
    assert "count.txt, written by the command that was approved: 13" in done.out
    assert "Outcome: cancelled" in done.out
    assert "written none more" in done.out
    assert left_behind(checkrein) == []


async def test_the_demo_asks_on_a_terminal(checkrein: Checkrein) -> None:
    """A person approves by word; one who leaves sees the rest all the same; Ctrl-C ends it whole."""
    terminal = Tmux(checkrein)
    try:
        terminal.command("demo")
        terminal.wait("execute: approve, edit, reject, respond, later?")
        terminal.type("approve", "Enter")
        screen = terminal.wait("status=")
        assert "status=0" in screen
        assert "  13" in screen
        assert "Outcome: cancelled" in screen
        assert "written none more" in screen
        terminal.command("demo")
        terminal.wait("execute: approve, edit, reject, respond, later?")
        terminal.type("Enter")
        screen = terminal.wait("status=")
        assert "Nothing was decided" in screen
        assert "status=0" in screen
        terminal.command("demo --no-prompt")
        terminal.wait("started")
        terminal.type("C-c")
        terminal.wait("status=")
    finally:
        terminal.close()
    assert [text for text in left_behind(checkrein) if not text.endswith("/tmux")] == []
