"""The command on a real terminal (tmux), with real keys and hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Checkrein
from tests.cli.tmux import Tmux

pytestmark = pytest.mark.anyio

PROMPT = "execute: approve, edit, reject, respond, later?"
HOSTILE = r"""
[[replies]]
when = { tool_results = 0 }
times = 0
text = "Plain\u001B[2J\u001B]0;title\u0007 text, \u202Etfel, \u200Bnothing.\r\nSecond line."
calls = [{ id = "call_1", name = "execute", arguments = { command = "echo ran >> ran.txt; printf 'a\\033[31mb\\n' # \u202E" } }]

[[replies]]
when = { tool_results = 1 }
times = 0
text = "Done, 漢字 ünd 🎉."
"""
LONG = """
[[replies]]
when = { tool_results = 0 }
times = 0
calls = [{ id = "call_1", name = "execute", arguments = { command = "seq 1 20; sleep 613" } }]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Checkrein:
    return Checkrein(tmp_path_factory.mktemp("terminal"))


@pytest.fixture(scope="module")
def terminal(place: Checkrein) -> Iterator[Tmux]:
    tmux = Tmux(place)
    yield tmux
    tmux.close()


def script_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.toml"
    path.write_text(text)
    return path


async def test_only_an_explicit_word_approves_and_hostile_text_is_spelled_out(
    place: Checkrein, terminal: Tmux, tmp_path: Path
) -> None:
    """S23, S31: ` y`, `Y`, Enter, Ctrl-C, end of input and keys typed too early leave it pending; then `approve` runs it."""
    script, ran = script_of(tmp_path, HOSTILE), place.workspace / "ran.txt"
    terminal.command(f"run 'look' --script {script}")
    screen = terminal.wait(PROMPT)
    assert "Plain<U+001B>[2J<U+001B>]0;title<U+0007> text, <U+202E>tfel, <U+200B>nothing." in screen
    assert "Second line." in screen
    assert "# <U+202E>" in screen
    assert "warning" in screen.lower()
    assert f"workspace: {place.workspace}" in screen
    for number, keys in enumerate((" y", "Y", "ok", "\x1b[A"), 1):
        terminal.type(keys, "Enter")
        terminal.wait(lambda text, number=number: text.count("Nothing was decided.") == number and text.count(PROMPT) > number)
    terminal.type("Enter")
    screen = terminal.wait("status=")
    assert "status=3" in screen
    thread = screen.partition("checkrein approve ")[2].split()[0]

    terminal.command(f"decide {thread} --script {script}", "yes", "approve", "yes")
    terminal.wait(PROMPT)
    terminal.type("C-c")
    assert "status=3" in terminal.wait("status=")

    terminal.command(f"decide {thread} --script {script}")
    terminal.wait(PROMPT)
    terminal.type("approve", "C-d", "C-d")
    assert "status=3" in terminal.wait("status=")
    assert not ran.exists()

    terminal.command(f"decide {thread} --script {script}")
    terminal.wait(PROMPT)
    terminal.type("approve", "Enter")
    screen = terminal.wait("status=")
    assert "status=0" in screen
    assert "a<U+001B>[31mb" in screen
    assert "Done, 漢字 ünd 🎉." in screen
    assert ran.read_text() == "ran\n"


async def test_a_running_command_is_seen_alive_and_ctrl_c_cancels_it(place: Checkrein, terminal: Tmux, tmp_path: Path) -> None:
    """Spinner, seconds and last lines while it runs; nothing of them stays on the screen."""
    terminal.command(f"run 'count' --script {script_of(tmp_path, LONG)}")
    terminal.wait(PROMPT)
    terminal.type("edit", "Enter")
    terminal.wait("New command:")
    terminal.type("seq 101 120; sleep 614", "Enter")
    assert "$ seq 101 120; sleep 614" in terminal.wait("approve this?")
    terminal.type("yes", "Enter")
    screen = terminal.wait(lambda text: "| 120" in text and "execute (1 s)" in text)
    assert "| 115" in screen
    assert "| 114" not in screen
    assert "Ctrl-C cancels" in screen
    terminal.type("C-c")
    screen = terminal.wait("status=")
    assert "status=4" in screen
    assert "  120" in screen, "the last lines of what was cut off stay"
    assert "Cancelling (Ctrl-C at the terminal)" in screen
    assert "Cancelled." in screen
    assert "Ctrl-C cancels" not in screen
    assert "Traceback" not in screen


async def test_listings_are_tables_on_a_terminal_and_colours_can_be_off(place: Checkrein, terminal: Tmux, script: str) -> None:
    parked = await place("run", "look", "--script", script)
    thread = parked.last["payload"]["checkpoint_thread_id"]
    terminal.command(f"--no-color show {thread[:8]}")
    screen = terminal.wait("status=0")
    assert thread in screen
    assert "echo ran >> ran.txt" in screen
    assert f"checkrein approve {thread}" in screen
    terminal.command(f"run 'more' --no-prompt --script {script}")
    screen = terminal.wait("status=")
    assert "status=3" in screen
    assert "$ echo ran" in screen
    assert "checkrein decide " in screen
    terminal.command("list --json")
    assert '{"kind": "thread", ' in terminal.wait("status=0")
