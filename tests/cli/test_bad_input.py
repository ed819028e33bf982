"""Every refusal through the real command: a clear sentence, its own status, and nothing lost."""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from checkpoints.clock import SystemClock
from graphs.cli import dispatch
from graphs.cli.face import JsonLines
from nodes.models.script import Script, ScriptedReply
from nodes.models.scripted import ScriptedModel
from tests.cli.command import Checkrein, Done

pytestmark = pytest.mark.anyio

HELLO = Script.of(ScriptedReply(text="Hello.", times=0))
MEGABYTES_5 = b"x" * 5_000_000


def refused(done: Done, status: int, code: str, *words: str) -> None:
    """The error is the last line for programs and a sentence with a hint for people."""
    assert done.status == status, (done.out, done.err)
    error = done.last if done.last["kind"] == "error" else done.last["payload"]["error"]
    assert error["code"] == code, error
    assert error["message"]
    assert error["hint"] or "; " in error["message"], error
    said = f"{error['message']} {error['hint']}".lower()
    assert all(word.lower() in said for word in words), said
    if done.last["kind"] == "error":
        assert done.last["exit_status"] == status
        assert done.err.startswith("checkrein: ")


async def test_no_endpoint(checkrein: Checkrein) -> None:
    refused(await checkrein("run", "hi", "--model", "any"), 1, "model_no_endpoint", "base url")


async def test_a_refused_connection(checkrein: Checkrein) -> None:
    async with ScriptedModel(HELLO) as server:
        gone = server.base_url
    done = await checkrein("run", "hi", "--model", "any", "--base-url", gone)
    refused(done, 1, "model_connection_refused", gone, "is running")


async def test_a_wrong_key_is_told_apart_from_a_missing_model(checkrein: Checkrein) -> None:
    async with ScriptedModel(HELLO, api_key="right", models=["known"]) as server:
        endpoint = ("--base-url", server.base_url)
        done = await checkrein("run", "hi", *endpoint, "--model", "known", CHECKREIN_API_KEY="sk-wrong-and-secret")
        refused(done, 1, "model_unauthorized", "key")
        assert "sk-wrong-and-secret" not in done.out + done.err
        done = await checkrein("run", "hi", *endpoint, "--model", "unheard-of", CHECKREIN_API_KEY="right")
        refused(done, 1, "model_not_found", "unheard-of")
        done = await checkrein("run", "hi", *endpoint, "--model", "known", CHECKREIN_API_KEY="right")
        assert done.status == 0


@pytest.mark.parametrize("words", [("show",), ("approve",), ("cancel",), ("follow",), ("delete",), ("run", "hi", "--thread")])
async def test_an_unknown_thread(checkrein: Checkrein, script: str, words: tuple[str, ...]) -> None:
    model = ("--script", script) if words[0] in ("run", "approve") else ()
    refused(await checkrein(*words, "no-such-thread", *model), 2, "unknown_thread", "no-such-thread", "list")


async def test_an_answer_that_does_not_fit_leaves_the_approval_pending(checkrein: Checkrein, script: str) -> None:
    """Wrong count, wrong kind, wrong call, an unknown field, a changed tool, no JSON, null, {} (S67); a correct one works."""
    thread = (await checkrein("run", "hi", "--script", script)).last["payload"]["checkpoint_thread_id"]
    wrong = {
        "[]": "answer",
        '[{"type": "approve"}, {"type": "approve"}]': "answer",
        '[{"type": "maybe"}]': "answer",
        '[{"type": "approve", "tool_call_id": "call_9"}]': "answer",
        '[{"type": "approve", "digest": "0000"}]': "answer",
        '[{"type": "approve", "force": true}]': "answer",
        '[{"type": "respond"}]': "answer",
        '[{"type": "edit", "edited_action": {"name": "read_file", "args": {"path": "x"}}}]': "answer",
        '[{"type": "edit", "edited_action": {"name": "execute", "args": {"comand": "ls"}}}]': "answer",
        '{"type": "approve"}': "arguments",
        "[1]": "arguments",
        "null": "arguments",
        "{}": "arguments",
        "approve": "arguments",
        "@/no/such/file": "arguments",
    }
    for decisions, code in wrong.items():
        refused(await checkrein("decide", thread, "--decisions", decisions, "--script", script), 2, code)
    assert not (checkrein.workspace / "ran.txt").exists()
    done = await checkrein("decide", thread, "--decisions", "-", "--script", script, typed=b'[{"type": "approve"}]')
    assert done.status == 0
    assert (checkrein.workspace / "ran.txt").read_text() == "ran\n"
    refused(await checkrein("reject", thread, "--script", script), 6, "nothing_waits", thread)


async def test_a_workspace_that_is_not_there(checkrein: Checkrein, script: str) -> None:
    done = await checkrein("run", "hi", "--script", script, "--workspace", "nowhere")
    refused(done, 2, "workspace_missing", "nowhere", "--workspace")
    (checkrein.workspace / "file").touch()
    refused(await checkrein("run", "hi", "--script", script, "--workspace", "file"), 2, "workspace_missing", "file")


async def test_a_store_of_a_newer_version_is_left_untouched(checkrein: Checkrein) -> None:
    await checkrein("list")
    with closing(sqlite3.connect(checkrein.store)) as connection, connection:
        connection.execute("UPDATE store_info SET value = '999' WHERE name = 'version'")
    refused(await checkrein("list"), 1, "store_version", "999", "upgrade")
    with closing(sqlite3.connect(checkrein.store)) as connection:
        assert connection.execute("SELECT value FROM store_info WHERE name = 'version'").fetchall() == [("999",)]


@pytest.mark.parametrize("kind", ["text", "database", "folder"])
async def test_a_file_of_another_program_is_left_untouched(checkrein: Checkrein, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "other"
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("dear diary " * 100)
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes() if path.is_file() else b""
    refused(await checkrein("list", "--store", str(path)), 1, "not_a_store", str(path))
    assert (path.read_bytes() if path.is_file() else b"") == before


async def test_a_store_without_its_folder(checkrein: Checkrein) -> None:
    refused(await checkrein("list", "--store", "/no/such/folder/x.db"), 1, "store_missing", "/no/such/folder")


async def test_a_store_that_cannot_be_written(checkrein: Checkrein) -> None:
    """/proc takes no files, for root either, so this holds for every user that runs the tests."""
    done = await checkrein("list", "--store", "/proc/checkrein.db")
    assert done.status == 1
    assert done.last["code"] in ("store_read_only", "store_missing")
    assert "/proc/checkrein.db" in done.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["read"]),
        ("[[replies]\n", ["TOML"]),
        ("[[replies]]\ntext = 5\n", ["replies[0].text"]),
        ("[[replies]]\ntxet = 'x'\n", ["replies[0].txet"]),
        ("", ["replies"]),
    ],
)
async def test_a_broken_script(checkrein: Checkrein, tmp_path: Path, content: str | None, words: list[str]) -> None:
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_text(content)
    refused(await checkrein("run", "hi", "--script", str(path)), 2, "script_invalid", str(path), *words)
    refused(await checkrein("model", str(path)), 2, "script_invalid", str(path), *words)
    assert (await checkrein("list")).lines == []


@pytest.mark.parametrize("task", [b"", b" \n\t "])
async def test_an_empty_task(checkrein: Checkrein, script: str, task: bytes) -> None:
    refused(await checkrein("run", "-", "--script", script, typed=task), 2, "task")
    refused(await checkrein("run", task.decode(), "--script", script), 2, "task")
    assert (await checkrein("list")).lines == []


async def test_a_task_of_five_megabytes(checkrein: Checkrein, script: str) -> None:
    refused(await checkrein("run", "-", "--script", script, typed=MEGABYTES_5), 2, "task", "5,000,000")
    refused(await checkrein("run", "-", "--script", script, typed=b"\xff\xfe"), 2, "task_text", "UTF-8")
    assert (await checkrein("list")).lines == []


async def test_a_task_may_be_typed_in(checkrein: Checkrein, script: str) -> None:
    done = await checkrein("run", "-", "--script", script, typed="zähle die Wörter 漢\n".encode())
    assert done.status == 3
    [thread] = (await checkrein("list")).lines
    assert thread["title"] == "zähle die Wörter 漢"


async def test_arguments_that_are_no_json_from_the_model(checkrein: Checkrein, tmp_path: Path) -> None:
    """The model is told, nothing runs, and the run ends in order."""
    path = tmp_path / "broken_arguments.toml"
    path.write_text(
        """
[[replies]]
when = { tool_results = 0 }
calls = [{ id = "call_1", name = "execute", fragments = ['{"command": "touch', ' ran.txt'] }]

[[replies]]
text = "I see."
"""
    )
    done = await checkrein("run", "hi", "--script", str(path), "--review-mode", "auto")
    assert done.status == 0, done.out
    thread = done.last["payload"]["checkpoint_thread_id"]
    [result] = [line for line in (await checkrein("show", thread)).of_kind("message") if line["type"] == "tool"]
    assert result["status"] == "error"
    assert not (checkrein.workspace / "ran.txt").exists()


async def test_a_store_that_is_locked_for_a_moment_is_waited_for(checkrein: Checkrein, script: str) -> None:
    await checkrein("list")
    with closing(sqlite3.connect(checkrein.store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        running = checkrein.start("run", "hi", "--script", script)
        await asyncio.sleep(0.5)
        other.execute("COMMIT")
        assert (await running.end()).status == 3


def test_a_fault_of_ours_is_one_sentence_and_its_traceback_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown command cannot come from the parser, so it stands for every fault."""
    monkeypatch.setenv("CHECKREIN_HOME", str(tmp_path))
    status = dispatch.perform(argparse.Namespace(command="no such command", debug=False), JsonLines(SystemClock()))
    out, err = capsys.readouterr()
    log = tmp_path / dispatch.LOG
    assert status == 1
    assert json.loads(out)["code"] == "internal"
    assert len(err.splitlines()) == 2
    assert str(log) in err
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
