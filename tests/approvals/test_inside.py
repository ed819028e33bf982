"""Paths that lead out, secrets and floods, through whole runs: observations for the model, and nothing leaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphs.refusals import AnswerError
from tests.approvals.asking import answers, decided, events_of, park, ran
from tests.runs.scene import calls, opened, says, scene

pytestmark = pytest.mark.anyio

CANARY = "CANARY-OUTSIDE"
ESCAPES = "Path escapes the workspace boundary"


async def test_paths_that_lead_out_are_observations_and_nothing_of_them_is_in_any_frame(tmp_path: Path) -> None:
    """BOT-14, S60, S71, S72: links, parents, absolute paths and searches; the run is completed."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(CANARY)
    (workspace / "folder").symlink_to(tmp_path / "outside")
    (workspace / "file").symlink_to(tmp_path / "outside" / "secret.txt")
    (workspace / "note.txt").write_text("inside\n")
    paths = ["folder/secret.txt", "file", "../outside/secret.txt", f"{tmp_path}/outside/secret.txt", "/etc/hostname", "~/x"]
    reading = calls(*[("read_file", {"path": path}) for path in paths])
    walking = calls(
        ("list_files", {"path": "folder"}),
        ("search_files", {"pattern": "CANARY"}),
        ("search_files", {"pattern": "CANARY", "path": "/"}),
        ("read_file", {"path": "a\0b"}),
        ("read_file", {"path": ""}),
        ("read_file", {"path": "x" * 5000}),
    )
    async with scene(tmp_path, [reading, walking, says("Refused.")]) as place, opened(place) as service:
        run = await ran(service, place)
        texts = [str(answer.content) for answer in await answers(service, run.thread_id)]
        assert texts[: len(paths)] == [ESCAPES] * len(paths)
        assert texts[len(paths)] == ESCAPES
        assert texts[len(paths) + 2] == ESCAPES
        assert all(len(text) < 1000 for text in texts)
        events = [json.dumps(event.payload) async for event in run.stream()]
        sent = [json.dumps(request.body) for request in place.model.requests]
        assert not [frame for frame in (*events, *sent) if CANARY in frame]


async def test_an_approved_write_through_a_link_that_was_put_there_meanwhile_does_not_leave(tmp_path: Path) -> None:
    """S60, promise 1: the folder becomes a link outside between the approval's question and its answer."""
    write = ("write_file", {"path": "sub/new.txt", "content": CANARY})
    async with scene(tmp_path, [calls(write), says("Refused.")]) as place, opened(place) as service:
        (place.workspace / "sub").mkdir()
        (tmp_path / "outside").mkdir()
        run = await park(service, place)
        (place.workspace / "sub").rmdir()
        (place.workspace / "sub").symlink_to(tmp_path / "outside")
        with pytest.raises(AnswerError, match="not as it was shown"):
            await service.decide(run.thread_id, [{"type": "approve"}])
        assert await decided(service, run.thread_id, [{"type": "approve"}]) == "completed"
        [answer] = await answers(service, run.thread_id)
        assert answer.content == ESCAPES
        assert list((tmp_path / "outside").iterdir()) == []


async def test_a_name_is_made_in_the_case_that_was_asked_for(tmp_path: Path) -> None:
    """S73: compared and made as POSIX does; every spelling is a file of its own."""
    names = ["README.md", "readme.md", "STRASSE", "straße", "CON", "a."]
    reply = calls(*[("write_file", {"path": name, "content": name}) for name in names])
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        await ran(service, place, place.context.model_copy(update={"yolo": True}))
        assert sorted(path.name for path in place.workspace.iterdir()) == sorted(names)
        assert all((place.workspace / name).read_text() == name for name in names)


async def test_a_command_gets_no_key_and_a_key_that_it_prints_is_not_in_the_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S69: the child's environment is an allow-list; a value that a file of the workspace knows is redacted in the log."""
    secret = "not-a-shape-of-a-key-0123456789"
    monkeypatch.setenv("CHECKREIN_API_KEY", secret)
    monkeypatch.setenv("SOME_SERVICE_TOKEN", secret)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "leaked").write_text(f"{secret}\n")
    reply = calls(("execute", {"command": "env"}), ("execute", {"command": "cat leaked"}))
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        run = await park(service, place)
        later = await service.decide(run.thread_id, [{"type": "approve"}] * 2)
        await later.wait_stopped(30)
        environment, _ = [str(answer.content) for answer in await answers(service, run.thread_id)]
        assert "PATH=" in environment
        assert secret not in environment
        assert "API_KEY" not in environment
        log = [json.dumps(event.payload) async for event in later.stream()]
        assert not [line for line in log if secret in line]
        assert "[redacted]" in "".join(log)


async def test_a_flood_is_bounded_in_the_history_and_in_the_log_and_has_a_handle(tmp_path: Path) -> None:
    """S70: a line of 2 MB, 100,000 lines and NULs in one turn; the model and the log get head, tail and where the rest is."""
    lines = (
        "head -c 2000000 /dev/zero | tr '\\0' x",
        "seq 100000",
        "head -c 200000 /dev/zero",
    )
    reply = calls(*[("execute", {"command": line}) for line in lines])
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        run = await ran(service, place, place.context.model_copy(update={"yolo": True}))
        texts = [str(answer.content) for answer in await answers(service, run.thread_id)]
        assert max(len(text.encode()) for text in texts) < 100_000, "32 KiB, a NUL spelled in three bytes"
        assert all("The full output is kept" in text for text in texts)
        assert texts[1].startswith("1\n2\n")
        assert "100000" in texts[1]
        done = await events_of(run, "tool.complete")
        assert all(len(json.dumps(payload)) < 100_000 for payload in done)
        kept = {file.name: file.stat().st_size for file in place.settings.home.glob("artifacts/*/*")}
        assert all(kept[payload["details"]["artifact"]] >= 200_000 for payload in done)
        log = [json.dumps(event.payload) async for event in run.stream()]
        assert sum(len(line) for line in log) < 2_000_000
