"""One terminal event, whatever fails and whoever leaves: the first cause wins, and what fails later is a note on it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from checkpoints.ledger import Ledger
from checkpoints.store_errors import StoreError
from graphs.service import Service
from nodes.models.script import ScriptedReply
from nodes.tools.tool import CallSite, Effect, Tool, ToolResult
from tests.accounting.ledgers import Look, all_answered, chain, configured, freely, saw, told, working
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene

pytestmark = pytest.mark.anyio

SLOW = ScriptedReply(text="one two three", pause=0.3)


async def falls(_: Look, site: CallSite) -> ToolResult:
    site.emit("output", tool_call_id=site.call_id, text="chunk 1\n")
    site.emit("output", tool_call_id=site.call_id, text="chunk 2\n")
    raise RuntimeError("the tool fell over")


FALLING = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.NONE, run=falls)
FALLING_OUTSIDE = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.OUTSIDE, run=falls)


@contextmanager
def refusing(place: Scene, what: str) -> Iterator[None]:
    """Until the block is left, the database refuses some writes, as a full or broken disk would."""
    with closing(sqlite3.connect(place.settings.store, timeout=10, isolation_level=None)) as connection:
        connection.execute(f"CREATE TRIGGER broken BEFORE INSERT ON {what} BEGIN SELECT RAISE(ABORT, 'disk trouble'); END")
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER broken")


async def usable(place: Scene, service: Service, thread_id: str) -> None:
    """The thread takes the next task, and the strict server its history."""
    again = await told(await service.submit("hello", thread_id=thread_id, context=freely(place)), "completed")
    assert again.terminal["final_text"] == "Hello."
    assert all_answered((await service.show(thread_id)).messages)


@pytest.mark.parametrize("tool", [FALLING, FALLING_OUTSIDE], ids=["a read", "an effect"])
async def test_a_tool_that_raises_after_two_chunks_ends_its_run_once(tmp_path: Path, tool: Tool) -> None:
    """S59: what it said is there, the run failed, and the call is answered."""
    async with working(tmp_path, [calls(("look", {})), says("Hello.")], tools=[tool]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "failed")
        assert "".join(payload["text"] for payload in run.of_kind("output")) == "chunk 1\nchunk 2\n"
        assert "the tool fell over" in run.terminal["error"]["message"]
        await usable(place, service, run.terminal["checkpoint_thread_id"])


async def test_a_model_that_raises_ends_its_run_once(tmp_path: Path) -> None:
    """S59"""
    refused = ScriptedReply(status=401, body={"error": {"message": "who are you"}})
    async with working(tmp_path, [refused, says("Hello.")]) as (place, service):
        run = await told(await service.submit("Go.", context=freely(place)), "failed")
        assert run.terminal["error"]["code"] == "model_unauthorized"
        await usable(place, service, run.terminal["checkpoint_thread_id"])


async def test_a_consumer_that_leaves_ends_nothing(tmp_path: Path) -> None:
    """S59: the run goes on, and who comes back reads the same events to the same end."""
    async with working(tmp_path, [SLOW]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        await saw(run, "token")
        whole = await told(run, "completed")
        assert whole.shown == "one two three"
        assert (await told(run)).events == whole.events


async def test_a_consumer_that_is_cancelled_cancels_nobody_else(tmp_path: Path) -> None:
    """S59: a reader's task dies in the middle of the stream."""
    async with working(tmp_path, [SLOW]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        reader = asyncio.create_task(saw(run, "never said"), name="reader")
        await saw(run, "token")
        reader.cancel()
        await asyncio.wait({reader})
        await told(run, "completed")


@pytest.mark.parametrize("rows", ["checkpoints", "writes"])
async def test_a_checkpoint_that_is_not_taken_ends_the_run_once(tmp_path: Path, rows: str) -> None:
    """S59: the model has answered and the store refuses to keep it: failed, with the store's reason."""
    async with working(tmp_path, [SLOW, says("Hello.")]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        await saw(run, "token")
        with refusing(place, rows):
            ended = await told(run, "failed")
        assert ended.terminal["error"]["code"].startswith("store")
        await usable(place, service, run.thread_id)


async def test_a_store_that_fails_during_a_tool_ends_the_run_once(tmp_path: Path) -> None:
    """S59: neither the result nor the answer that the ending writes is taken."""
    slow = asyncio.Event()

    async def waits(_: Look, site: CallSite) -> ToolResult:
        site.emit("output", tool_call_id=site.call_id, text="begun")
        await slow.wait()
        return ToolResult(content="done")

    tool = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.NONE, run=waits)
    async with working(tmp_path, [calls(("look", {})), says("Hello.")], tools=[tool]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        await saw(run, "output")
        with refusing(place, "checkpoints"):
            slow.set()
            ended = await told(run, "failed")
        assert ended.terminal["error"]["code"].startswith("store")
        await usable(place, service, run.thread_id)


async def test_an_ending_that_is_not_taken_is_written_by_whoever_finds_the_run(tmp_path: Path) -> None:
    """S59: the very last write fails. Nothing is claimed; the ending comes once, from the next runtime."""
    async with scene(tmp_path, [SLOW, says("Hello.")]) as place:
        configured(place, *chain("first"))
        async with opened(place) as service:
            run = await service.submit("Go.", context=freely(place))
            await saw(run, "token")
            with refusing(place, "events"), pytest.raises(StoreError, match="disk trouble"):
                await run.wait_stopped(GUARD)
            assert not (await service.find_run(run.run_id)).status.final
        async with opened(place) as other:
            for again in await other.recover():
                await again.wait_stopped(GUARD)
            kinds = [event.kind async for event in other.follow(run.run_id)]
            assert kinds.count("run_terminal") == 1
            assert kinds[-1] == "run_terminal"
            await usable(place, other, run.thread_id)


async def test_a_cause_that_comes_after_the_failure_is_a_note(tmp_path: Path) -> None:
    """S59: the model failed first; the cancel changes no outcome and sends no second event."""
    async with working(tmp_path, [ScriptedReply(status=401), says("Hello.")]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        before = await told(run, "failed")
        assert await run.cancel("too late") == "failed"
        assert (await told(run, "failed")).events == before.events
        notes = await Ledger(service.store).notes(run.run_id)
        assert any("too late" in str(note) for note in notes)
        await usable(place, service, run.thread_id)


async def test_a_tool_that_raises_while_it_is_cancelled_changes_no_outcome(tmp_path: Path) -> None:
    """S59: the cancel was first."""

    async def falls_late(_: Look, site: CallSite) -> ToolResult:
        site.emit("output", tool_call_id=site.call_id, text="begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("it fell over on the way out") from None
        return ToolResult(content="never")

    tool = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.NONE, run=falls_late)
    async with working(tmp_path, [calls(("look", {})), says("Hello.")], tools=[tool]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        await saw(run, "output")
        assert await run.cancel("enough") == "cancelled"
        assert (await told(run, "cancelled")).terminal["cause"] == "cancel"
        await usable(place, service, run.thread_id)
