"""Tools of a server in the real graph: asked for, approved, ruled on, cancelled with the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphs.service import Service
from nodes.models.script import ScriptedReply
from tests.mcp.serving import server_pids, stdio, written
from tests.runs.scene import GUARD, Scene, alive, calls, opened, says, scene

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent whose user has configured the real server."""

    place: Scene
    service: Service

    async def answers(self, thread_id: str) -> list[Any]:
        """The tool answers in a thread."""
        state = await self.service.state(thread_id)
        return [message for message in state.values["messages"] if message.type == "tool"]


@asynccontextmanager
async def agent(folder: Path, replies: Sequence[ScriptedReply], more: str = "") -> AsyncIterator[Agent]:
    """Opens everything as users do; `more` is added to the server's table in the configuration file."""
    async with scene(folder, replies) as place:
        assert place.settings.config is not None
        command = json.dumps(stdio(folder)["command"])
        place.settings.config.write_text(f"[mcp.servers.real]\ncommand = {command}\n{more}\n")
        async with opened(place) as service:
            yield Agent(place=place, service=service)
    for pid in server_pids(folder):
        assert not alive(pid)


async def test_a_servers_tool_waits_for_a_person_and_then_runs_once(tmp_path: Path) -> None:
    """EVO-12, S09: what a server offers is gated like a command, and what runs is what was shown, defaults included."""
    replies = [calls(("mcp__real__echo", {"text": "hello"})), says("Done.")]
    async with agent(tmp_path, replies) as at:
        run = await at.service.submit("Say hello.", context=at.place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        assert not (tmp_path / "echoed").exists()
        [request] = at.place.model.requests
        assert "mcp__real__echo" in {tool["function"]["name"] for tool in request.body["tools"]}
        view = await at.service.show(run.thread_id)
        [asked] = view.pending[0].value["action_requests"]
        assert (asked["name"], asked["args"]) == ("mcp__real__echo", {"text": "hello", "times": 1})
        child = await at.service.decide(run.thread_id, [{"type": "approve"}])
        assert await child.wait_stopped(GUARD) == "completed"
        assert [message.content for message in await at.answers(run.thread_id)] == ["hello"]
        assert (tmp_path / "echoed").read_text() == "hello\n"


async def test_a_tool_that_the_user_calls_harmless_runs_unasked(tmp_path: Path) -> None:
    """Its effect is the configuration's word: `wipe` says of itself that it only reads, and asks all the same."""
    replies = [calls(("mcp__real__echo", {"text": "x"})), calls(("mcp__real__wipe", {}))]
    async with agent(tmp_path, replies, 'effects = {echo = "none"}') as at:
        run = await at.service.submit("Go.", context=at.place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        assert (tmp_path / "echoed").exists()
        assert not (tmp_path / "wiped").exists()


async def test_arguments_that_do_not_fit_the_servers_schema_run_nothing(tmp_path: Path) -> None:
    """S37: the model reads what is wrong, and the schema."""
    replies = [calls(("mcp__real__echo", {"text": 3})), says("I see.")]
    async with agent(tmp_path, replies) as at:
        run = await at.service.submit("Go.", context=at.place.context)
        assert await run.wait_stopped(GUARD) == "completed"
        [answer] = await at.answers(run.thread_id)
        assert answer.status == "error"
        assert "$.text: 3 is not of type 'string'" in answer.content
        assert not (tmp_path / "echoed").exists()


async def test_an_error_of_the_tool_is_an_answer(tmp_path: Path) -> None:
    replies = [calls(("mcp__real__fail", {})), says("A pity.")]
    async with agent(tmp_path, replies, 'effects = {fail = "none"}') as at:
        run = await at.service.submit("Go.", context=at.place.context)
        assert await run.wait_stopped(GUARD) == "completed"
        [answer] = await at.answers(run.thread_id)
        assert answer.status == "error"
        assert "the shelf is empty" in answer.content


@pytest.mark.parametrize(("decision", "outcome", "ran"), [("allow", "completed", True), ("deny", "completed", False)])
async def test_a_rule_names_a_servers_tools_like_any_other(tmp_path: Path, *, decision: str, outcome: str, ran: bool) -> None:
    """HER-6: rules by tool, also by pattern."""
    rule = f'[[policy.rules]]\ndecision = "{decision}"\ntool = "mcp__real__*"'
    async with agent(tmp_path, [calls(("mcp__real__echo", {"text": "ruled"})), says("Done.")], rule) as at:
        run = await at.service.submit("Go.", context=at.place.context)
        assert await run.wait_stopped(GUARD) == outcome
        assert (tmp_path / "echoed").exists() is ran


async def test_a_cancelled_run_ends_its_call_and_the_server_stays(tmp_path: Path) -> None:
    """EVO-17: the server's own work is cancelled with the run."""
    async with agent(tmp_path, [calls(("mcp__real__wait", {}))], 'effects = {wait = "none"}') as at:
        run = await at.service.submit("Go.", context=at.place.context)
        assert await written(tmp_path / "waiting") == "begun"
        assert await run.cancel("enough") == "cancelled"
        assert await written(tmp_path / "cancelled") == "yes"
        assert alive(server_pids(tmp_path)[0])


async def test_a_cancelled_run_leaves_no_process_of_a_call_that_does_not_listen(tmp_path: Path) -> None:
    """EVO-17, EVO-18: the server is stopped, with what it started, before the run says that it is cancelled."""
    replies = [calls(("mcp__real__block", {})), says("Fine.")]
    async with agent(tmp_path, replies) as at:
        run = await at.service.submit("Go.", context=at.place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        child = await at.service.decide(run.thread_id, [{"type": "approve"}])
        forked = int(await written(tmp_path / "blocking"))
        async with asyncio.timeout(GUARD):
            assert await child.cancel("enough") == "cancelled"
        assert not alive(forked)
        assert not alive(server_pids(tmp_path)[0])
