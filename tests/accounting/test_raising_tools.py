"""A tool that raises has completed too, as far as its readers can tell, also when it was being stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodes.tools.tool import CallSite, Effect, Tool, ToolResult
from tests.accounting.ledgers import Look, freely, saw, told, working
from tests.runs.scene import calls

pytestmark = pytest.mark.anyio


async def falls(_: Look, site: CallSite) -> ToolResult:
    site.emit("output", tool_call_id=site.call_id, text="begun")
    raise RuntimeError("it fell over")


async def falls_late(_: Look, site: CallSite) -> ToolResult:
    site.emit("output", tool_call_id=site.call_id, text="begun")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise RuntimeError("it fell over") from None
    return ToolResult(content="never")


@pytest.mark.parametrize("how", ["by itself", "while it is cancelled"])
async def test_a_tool_that_raises_has_its_end(tmp_path: Path, how: str) -> None:
    """HER-13, S59: start and complete stay a pair, and a fault behind the first cause is not lost."""
    run_it = falls if how == "by itself" else falls_late
    tool = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.NONE, run=run_it)
    async with working(tmp_path, [calls(("look", {}))], tools=[tool]) as (place, service):
        run = await service.submit("Go.", context=freely(place))
        await saw(run, "output")
        if how != "by itself":
            await run.cancel("enough")
        ended = await told(run)
        [end] = ended.of_kind("tool.complete")
        assert (end["tool_call_id"], end["is_error"]) == ("call_1_0", True)
        assert "it fell over" in end["result"]
