"""Damaged streams through whole runs: each run ends in a typed outcome, and no tool runs from a call that arrived broken."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict

from checkpoints.errors import CheckreinError
from graphs.service import Service
from nodes.models.script import ScriptedReply, When
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult
from tests.accounting.ledgers import Told, all_answered, chain, freely, told, working
from tests.models.streams import call, chunk, event, stream
from tests.models.test_fuzz import damaged
from tests.runs.scene import Scene, says

pytestmark = pytest.mark.anyio

PLAIN, SHORT, FULL = 25, 150, 2_000
FIRST = 30_000
ALL_NAMES = ("find", "look", "delete")
QUICK = {"connect": 5.0, "first_byte": 20.0, "between_chunks": 20.0}


class Anything(Arguments):
    """Arguments of any kind, so that only the form of a call decides whether it runs."""

    model_config = ConfigDict(extra="allow", frozen=True)


def recording(ran: list[tuple[str, dict[str, Any]]]) -> list[Tool]:
    """Tools that note what they were run with."""

    def tool(name: str) -> Tool:
        async def run(arguments: Anything, _: CallSite) -> ToolResult:
            ran.append((name, arguments.model_dump()))
            return ToolResult(content="ran")

        return Tool(name=name, description="A tool.", arguments=Anything, effect=Effect.NONE, run=run)

    return [tool(name) for name in ALL_NAMES]


def typed_codes(start: type[CheckreinError] = CheckreinError) -> set[str]:
    """The codes of this project's own error tree, as far as it is loaded; `internal` is what is outside of it."""
    return {start.code}.union(*(typed_codes(child) for child in start.__subclasses__()))


def broken(seed: int) -> ScriptedReply:
    """One answer that arrives damaged, in one of three kinds of packets, and sometimes cut off."""
    return ScriptedReply(
        when=When(user_contains=f"task {seed}.", tool_results=0),
        raw=(damaged(seed).decode("utf-8", "surrogateescape"),),
        framing="close" if seed % 2 else "chunked",
        split=(None, 1, 13)[seed % 3],
        disconnect_after=seed * 7 % 900 if seed % 5 == 0 else None,
    )


async def one(place: Scene, service: Service, seed: int) -> Told:
    """One run on a thread of its own, and a second one on the same thread, which must be usable."""
    run = await told(await service.submit(f"This is task {seed}.", context=freely(place)))
    assert run.outcome in ("completed", "failed"), seed
    if run.outcome == "failed":
        code = run.terminal["error"]["code"]
        assert code in typed_codes(), (seed, run.terminal)
        assert code != "internal", (seed, run.terminal)
        assert "tool.start" not in run.kinds, seed
    thread_id = run.terminal["checkpoint_thread_id"]
    assert all_answered((await service.show(thread_id)).messages), seed
    again = await told(await service.submit("And now?", thread_id=thread_id, context=freely(place)), "completed")
    assert again.terminal["final_text"] == "Here."
    return run


async def runs_of(root: Path, seeds: Iterable[int]) -> Counter[str]:
    """Plays damaged answers, a run each; gives how often each ending came."""
    ends: Counter[str] = Counter()
    ran: list[tuple[str, dict[str, Any]]] = []
    chosen = list(seeds)
    replies = [*map(broken, chosen), says("Here.").model_copy(update={"times": 0})]
    async with working(root, replies, *chain("first", timeouts=QUICK), tools=recording(ran)) as (place, service):
        for seed in chosen:
            before = len(ran)
            run = await one(place, service, seed)
            starts = [(start["name"], start["args"]) for start in run.of_kind("tool.start")]
            assert [item for item in starts if item[0] in ALL_NAMES] == ran[before:], seed
            ends[run.terminal["error"]["code"] if run.outcome == "failed" else "tool" if starts else "completed"] += 1
    return ends


async def test_damaged_streams_end_runs_in_a_typed_outcome(tmp_path: Path) -> None:
    """S37, S38: no untyped error, no unusable thread."""
    ends = await runs_of(tmp_path, range(FIRST, FIRST + PLAIN))
    assert {"model_protocol", "model_truncated"} & ends.keys()
    assert ends["completed"] + ends["tool"] > 0


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_many_damaged_streams_end_runs_in_a_typed_outcome(tmp_path: Path) -> None:
    """S37, S38, at length."""
    count = SHORT if os.environ.get("CHECKREIN_SOAK") == "short" else FULL
    ends = await runs_of(tmp_path, range(FIRST, FIRST + count))
    assert {"model_protocol", "model_truncated", "completed", "tool"} <= ends.keys()


WANTED = {"path": "/a", "all": True}
WHOLE = json.dumps(WANTED)
FORMS = {
    "cut off": call(WHOLE[:9], call_id="a", name="delete"),
    "not JSON": call("{path: /a}", call_id="a", name="delete"),
    "not an object": call('["/a"]', call_id="a", name="delete"),
    "two objects": call(WHOLE + WHOLE, call_id="a", name="delete"),
    "no such tool": call(WHOLE, call_id="a", name="nothing"),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_broken_call_is_answered_and_never_run_nor_shown_to_a_person(tmp_path: Path, form: str) -> None:
    """S36, S37: the model reads what was wrong; nothing ran and nobody was asked."""
    ran: list[tuple[str, dict[str, Any]]] = []
    replies = [ScriptedReply(raw=(stream(FORMS[form]),)), says("I see.")]
    gated = [
        Tool(name=tool.name, description="A tool.", arguments=Anything, effect=Effect.OUTSIDE, run=tool.run)
        for tool in recording(ran)
    ]
    async with working(tmp_path, replies, tools=gated) as (place, service):
        run = await told(await service.submit("Go.", context=place.context), "completed")
        assert ran == []
        assert "tool.start" not in run.kinds
        messages = (await service.show(run.terminal["checkpoint_thread_id"])).messages
        assert all_answered(messages)
        refusal = messages[2]
        assert refusal.status == "error"
        assert "There is no tool" in refusal.text or "The schema is" in refusal.text
        assert place.model.statuses == [200, 200]


async def test_arguments_that_the_limit_cut_are_not_run_even_when_they_are_whole(tmp_path: Path) -> None:
    """S37: a finish reason of `length` says that more would have come."""
    ran: list[tuple[str, dict[str, Any]]] = []
    cut = stream(call(WHOLE[:-1], call_id="a", name="delete"), finish="length")
    async with working(tmp_path, [ScriptedReply(raw=(cut,)), says("I see.")], tools=recording(ran)) as (place, service):
        await told(await service.submit("Go.", context=freely(place)), "completed")
        assert ran == []


async def test_two_calls_that_cannot_be_told_apart_run_nothing(tmp_path: Path) -> None:
    """S34: a protocol error, not a guess."""
    ran: list[tuple[str, dict[str, Any]]] = []
    pieces = [
        call('{"x":', index=None, call_id="a", name="find"),
        call('{"y":', index=None, call_id="b", name="find"),
        call("1}", index=None),
        call("2}", index=None),
    ]
    mixed = "".join(event(chunk(piece)) for piece in pieces) + event(chunk(finish="tool_calls"))
    async with working(tmp_path, [ScriptedReply(raw=(mixed,))], tools=recording(ran)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "failed")
        assert run.terminal["error"]["code"] == "model_protocol"
        assert ran == []


async def test_ids_that_repeat_between_turns_are_sent_back_as_different_ones(tmp_path: Path) -> None:
    """S35: the strict server refuses a history with one id twice."""
    ran: list[tuple[str, dict[str, Any]]] = []
    same = ScriptedReply(raw=(stream(call(WHOLE, call_id="search:0", name="find")),))
    async with working(tmp_path, [same, same, says("Found.")], tools=recording(ran)) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "completed")
        assert ran == [("find", WANTED), ("find", WANTED)]
        assert place.model.statuses == [200, 200, 200]
        messages = (await service.show(run.terminal["checkpoint_thread_id"])).messages
        assert len([message for message in messages if message.type == "tool"]) == 2
