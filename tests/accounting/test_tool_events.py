"""What a run tells of its tools: a start and an end for each call, whole where it is short, and bounded where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodes.models.script import ScriptedCall, ScriptedReply
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult
from tests.accounting.ledgers import chain, freely, told, working
from tests.runs.scene import calls, says

pytestmark = pytest.mark.anyio

MEGABYTE = 1_000_000
PROMISED = 100_000


class Note(Arguments):
    path: str
    text: str = ""


async def refuse(arguments: Note, _: CallSite) -> ToolResult:
    body = {"error": "no such note", "path": arguments.path, "seen": "x" * MEGABYTE}
    return ToolResult(content=json.dumps(body), is_error=True, details={"error": "no such note", "seen": "x" * MEGABYTE})


NOTE = Tool(name="note", description="Notes.", arguments=Note, effect=Effect.NONE, run=refuse)


async def test_a_call_starts_and_completes_under_one_id(tmp_path: Path) -> None:
    """HER-13: in this order, with the arguments, and `is_error` as the tool said it, native commands included."""
    work = calls(("write_file", {"path": "a.txt", "content": "hello"}), ("execute", {"command": "exit 3"}))
    async with working(tmp_path, [work, calls(("read_file", {"path": "none"})), says("Done.")], *chain("first")) as (
        place,
        service,
    ):
        run = await told(await service.submit("Go.", context=freely(place)), "completed")
        starts = {payload["tool_call_id"]: payload for payload in run.of_kind("tool.start")}
        ends = {payload["tool_call_id"]: payload for payload in run.of_kind("tool.complete")}
        assert starts.keys() == ends.keys() == {"call_1_0", "call_1_1", "call_2_0"}
        assert starts["call_1_0"]["args"]["path"] == "a.txt"
        assert [ends[key]["is_error"] for key in sorted(ends)] == [False, True, True]
        for key in starts:
            place_of = [(kind, payload.get("tool_call_id")) for kind, payload in run.events]
            assert place_of.index(("tool.start", key)) < place_of.index(("tool.complete", key))


async def test_a_megabyte_of_arguments_and_of_result_stays_readable(tmp_path: Path) -> None:
    """HER-14: under 100,000 characters as valid JSON, with id, path and the error key, and it says that it was cut."""
    huge = ScriptedReply(calls=(ScriptedCall(name="note", arguments={"path": "a.txt", "text": "\u20ac" * MEGABYTE}),))
    async with working(tmp_path, [huge, says("Done.")], *chain("first", window=10_000_000), tools=[NOTE]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "completed")
        [start], [end] = run.of_kind("tool.start"), run.of_kind("tool.complete")
        for payload in (start, end):
            text = json.dumps(payload)
            assert len(text) < PROMISED
            assert json.loads(text) == payload
            assert payload["cut"] is True
        assert start["tool_call_id"] == end["tool_call_id"] == "call_1_0"
        assert start["args"]["path"] == "a.txt"
        assert (end["is_error"], end["details"]["error"]) == (True, "no such note")


async def test_many_kilobytes_of_arguments_are_cut_for_readers_and_not_for_the_tool(tmp_path: Path) -> None:
    """HER-14: what runs is what the model wrote."""
    text = "line\n" * 50_000
    work = calls(("write_file", {"path": "a.txt", "content": text}))
    async with working(tmp_path, [work, says("Done.")]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "completed")
        assert (place.workspace / "a.txt").read_text() == text
        assert len(json.dumps(run.of_kind("tool.start")[0])) < PROMISED
