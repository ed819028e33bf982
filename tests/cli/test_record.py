"""`checkrein record`: a real conversation as a script that plays again, without its secrets."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nodes.models.script import Script, ScriptedCall, ScriptedReply
from nodes.models.scripted import ScriptedModel
from tests.cli.command import Checkrein
from tests.cli.test_main_job import ended

pytestmark = pytest.mark.anyio

SECRET = "correct-horse-battery-staple"
TALK = Script.of(
    ScriptedReply(status=503, body="overloaded"),
    ScriptedReply(
        text=f"I was told {SECRET}.",
        calls=(ScriptedCall(name="execute", id="call_1", arguments={"command": f"echo '{SECRET}' >> ran.txt"}),),
    ),
    ScriptedReply(text="Done."),
)


async def test_a_recorded_conversation_plays_again_without_its_secrets(checkrein: Checkrein, tmp_path: Path) -> None:
    """Also the attempt that failed is kept, and a second recording never replaces the first."""
    file = tmp_path / "talk.toml"
    async with ScriptedModel(TALK, api_key=SECRET) as server:
        endpoint = ("--model", "any", "--base-url", server.base_url)
        first = await checkrein("record", str(file), "look", "--yolo", *endpoint, CHECKREIN_API_KEY=SECRET)
        assert (first.status, ended(first)) == (1, "failed")
        assert [reply.status for reply in Script.load(file).replies] == [503]
        again = await checkrein("record", str(file), "look", "--yolo", *endpoint, CHECKREIN_API_KEY=SECRET)
        assert (again.status, again.last["code"]) == (2, "record_file")
        assert len(server.requests) == 1, "nothing was asked"
        file.unlink()
        done = await checkrein("run", "look", "--record", str(file), "--yolo", *endpoint, CHECKREIN_API_KEY=SECRET)
        assert (done.status, ended(done)) == (0, "completed")
    assert SECRET not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    replayed = await checkrein("run", "look", "--script", str(file), "--yolo")
    assert (replayed.status, ended(replayed)) == (0, "completed")
    assert replayed.last["payload"]["final_text"] == "Done."
    assert (checkrein.workspace / "ran.txt").read_text() == f"{SECRET}\n***\n"
