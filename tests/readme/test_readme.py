"""Every example and every table of README.md against the code."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from graphs.cli.exits import MEANINGS
from graphs.cli.parser import CommandLineError, parse
from graphs.drawing import mermaid
from nodes.models.script import Script, ScriptedCall, ScriptedReply
from nodes.models.scripted import ScriptedModel
from nodes.policy.files import load_policy
from nodes.policy.judge import Policy
from tests.architecture.tree import ROOMS, ROOT, repository_files

README = (ROOT / "README.md").read_text()
HANG_GUARD = 60.0


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.+?)^```", README, re.M | re.S)


@pytest.mark.anyio
async def test_the_script_example_runs_as_it_stands(tmp_path: Path) -> None:
    """A dozen lines from import to an approved run."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("one two three\n")
    [example] = blocks("python")
    call = ScriptedCall(name="execute", arguments={"command": "wc -w < notes.txt | tee count.txt"})
    async with ScriptedModel(Script.of(ScriptedReply(calls=(call,)), ScriptedReply(text="Three words.")), strict=True) as model:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            example,
            cwd=project,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "PYTHONPATH": str(ROOT),
                "CHECKREIN_HOME": str(tmp_path / "home"),
                "CHECKREIN_BASE_URL": model.base_url,
                "CHECKREIN_MODEL": "scripted",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(HANG_GUARD):
            output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert output.decode().splitlines()[-1] == "Three words."
    assert (project / "count.txt").read_text().strip() == "3"


def test_every_command_that_is_shown_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.strip() for block in blocks("sh") for line in re.split(r"\n|&&", block)]
    inline = [" ".join(words.split()) for words in re.findall(r"`(checkrein [^`]+)`", README)]
    spoken = [shlex.split(line)[1:] for line in [*lines, *inline] if line.startswith("checkrein ")]
    assert len(spoken) > 8
    for words in spoken:
        assert command_of(words) == words[0]


def command_of(words: list[str]) -> str:
    """The command that the words say; of a command that is only named, its help must answer."""
    try:
        return str(parse(words).command)
    except CommandLineError:
        with pytest.raises(SystemExit, match=r"^0$"):
            parse([*words, "--help"])
        return words[0]


def test_the_table_of_exit_codes_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README, re.M)
    assert rows == [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:graphs|nodes|checkpoints|tests|\.ci)/[^` ]*)`", README))
    missing = {name for name in named if not (ROOT / name).exists()}
    assert len(named) > 20
    assert not missing


def test_every_environment_variable_that_is_named_is_read() -> None:
    code = "".join(
        (ROOT / name).read_text() for name in repository_files() if name.split("/")[0] in ROOMS and name.endswith(".py")
    )
    named = set(re.findall(r"\b(?:CHECKREIN|OPENAI)_[A-Z_]+\b", README))
    assert named == {name for name in named if f'"{name}"' in code}
    assert named >= set(re.findall(r'"(CHECKREIN_(?:HOME|STORE|MODEL|BASE_URL|API_KEY))"', code))


def test_the_model_script_that_is_shown_is_one(tmp_path: Path) -> None:
    file = tmp_path / "script.toml"
    file.write_text(next(block for block in blocks("toml") if "[[replies]]" in block))
    assert [reply.text for reply in Script.load(file).replies] == ["I will count them.", "Counted."]


def test_the_rule_that_is_shown_is_one(tmp_path: Path) -> None:
    file = tmp_path / "checkrein.toml"
    file.write_text(next(block for block in blocks("toml") if "[[policy.rules]]" in block))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    policy: Policy = load_policy(str(workspace), user=file)
    assert [(rule.tool, rule.command) for rule in policy.rules] == [("execute", ("npm", "run", "test"))]


@pytest.mark.anyio
async def test_the_drawing_of_the_graph_is_the_one_that_was_reviewed() -> None:
    """A changed edge shows in review: write the new text into the file, on purpose."""
    assert await mermaid() == (Path(__file__).parent / "graph.mermaid").read_text().rstrip("\n")
