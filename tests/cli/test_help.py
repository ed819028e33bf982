"""Help at the speed of the bare interpreter, the grammar, and the table of exit statuses."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from checkpoints.errors import CheckreinError, ConflictError, UsageError
from checkpoints.status import OUTCOMES
from graphs.cli.arguments import CommandLineError
from graphs.cli.exits import MEANINGS, Exit, of_error, of_outcome
from graphs.cli.parser import VERSION, parse
from tests.cli.command import ROOT

HEAVY = (
    "asyncio",
    "langgraph",
    "langchain_core",
    "langchain_openai",
    "openai",
    "pydantic",
    "rich",
    "aiohttp",
    "sqlite3",
    "orjson",
)
COMMANDS = (
    *("run", "approve", "reject", "edit", "respond", "decide", "list", "inbox", "show", "follow", "graph", "cancel", "delete"),
    *("demo", "doctor", "model", "record", "resume", "recover", "store", "rules", "sessions"),
    *("store stats", "store prune", "store export", "store import"),
    *("rules list", "rules revoke", "sessions list", "sessions delete"),
)
LOADED = """
import sys
sys.argv = ["checkrein", *{words!r}]
from graphs.cli import main
try:
    main()
except SystemExit:
    pass
print("LOADED", *sorted(sys.modules))
"""


def loaded_after(*words: str) -> set[str]:
    code = LOADED.format(words=list(words))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.rpartition("LOADED ")[2].split())


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",), ("run", "--no-such-option")])
def test_help_version_and_mistakes_load_nothing_heavy(words: tuple[str, ...]) -> None:
    """Issue: `checkrein --help` needs no heavy import."""
    assert loaded_after(*words).isdisjoint(HEAVY)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"usage: checkrein {command}" in capsys.readouterr().out


def test_help_documents_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    assert set(MEANINGS) == set(Exit)
    assert all(f"{int(code):>5}  {meaning}" in text for code, meaning in MEANINGS.items())


def test_outcomes_have_statuses_of_their_own() -> None:
    """Issue: completed, awaiting_input, cancelled, timeout, failed and usage errors are all different."""
    statuses = [of_outcome(str(outcome)) for outcome in OUTCOMES]
    limit, usage, conflict = of_outcome("completed", at_limit=True), of_error(UsageError()), of_error(ConflictError())
    assert len({*statuses, limit, usage, conflict}) == len(OUTCOMES) + 3
    assert of_error(CheckreinError()) == Exit.FAILED


def test_global_options_stand_before_or_after_the_command() -> None:
    before, after = parse(["--json", "--store", "x.db", "list"]), parse(["list", "--json", "--store", "x.db"])
    assert (before.json, before.store) == (after.json, after.store) == (True, "x.db")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run"],
        ["frobnicate"],
        ["run", "x", "--review-mode", "yolo"],
        ["run", "x", "--timeout", "0"],
        ["run", "x", "--timeout", "nan"],
        ["run", "x", "--max-turns", "-1"],
        ["run", "x", "--model-name", "y"],
        ["edit", "t"],
        ["edit", "t", "--args", "{}", "--command", "ls"],
        ["respond", "t"],
        ["decide"],
        ["model", "f", "--port", "70000"],
        ["list", "--lim", "3"],
        ["store"],
        ["store", "prune", "--older-than", "30"],
        ["store", "prune", "--keep", "-1"],
        ["rules", "revoke"],
        ["approve", "t", "--remember", "forever"],
        ["run", "x", "--max-cost", "0"],
        ["record", "x"],
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(words: list[str]) -> None:
    with pytest.raises(CommandLineError):
        parse(words)


def test_help_loads_a_handful_of_small_modules_of_ours() -> None:
    """Near bare start-up: the rest is argparse and json."""
    ours = {name for name in loaded_after("--help") if name.partition(".")[0] in ("graphs", "nodes", "checkpoints")}
    assert ours == {
        "checkpoints",
        "checkpoints.errors",
        "graphs",
        "graphs.cli",
        "graphs.cli.arguments",
        "graphs.cli.entry",
        "graphs.cli.exits",
        "graphs.cli.jsonlines",
        "graphs.cli.parser",
    }


def test_the_version_is_the_distribution_s() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["project"]["version"] == VERSION
