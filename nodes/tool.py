"""The tool step: one task per call, executed in this process; native commands have a subgraph of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.runtime import Runtime

from nodes.calls import Call
from nodes.context import AgentContext
from nodes.effects import Effects, Site, site_of
from nodes.events import Events
from nodes.gate import Gate, answer_of
from nodes.processes.scope import outlast
from nodes.state import ToolTask
from nodes.tools.tool import CallSite, Effect, Emit, ToolResult

CUT_SHORT = "The run was stopped while this call ran; what it had started was stopped, and its work may be half done."
CUT = ToolResult(content=CUT_SHORT, is_error=True)


class ToolStep:
    """The node."""

    def __init__(self, gate: Gate, effects: Effects, events: Events) -> None:
        self._gate = gate
        self._effects = effects
        self._events = events

    async def __call__(self, state: ToolTask, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        """Answers one call: with what is known already, with a refusal, or with what the tool gives."""
        preset = state.get("preset")
        if preset is not None:
            result = ToolResult(content=preset["content"], is_error=preset["is_error"])
        else:
            result = await self._admitted(state, site_of(state), self._events.emitter(runtime))
        return {"messages": [answer_of(state, result)]}

    async def _admitted(self, task: ToolTask, site: Site, emit: Emit) -> ToolResult:
        call = await self._gate.admits(task)
        if isinstance(call, str):
            return ToolResult(content=call, is_error=True)
        run = call.tool.run
        assert run is not None
        if call.tool.effect is Effect.NONE:
            return await self._shown(call, emit, lambda: run(call.arguments, _call_site(site, emit)))
        known = await self._effects.enter(call, site, task["change"])
        if known is not None:
            return known
        try:
            result = await self._shown(call, emit, lambda: run(call.arguments, _call_site(site, emit)))
        except asyncio.CancelledError:
            # The tool has ended by now, by its contract; that it was cut short is its result.
            await outlast(asyncio.ensure_future(self._effects.finish(site, CUT)))
            raise
        await outlast(asyncio.ensure_future(self._effects.finish(site, result)))
        return result

    async def _shown(self, call: Call, emit: Emit, work: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Runs the work between its two events, also when it is cut short, and gives its result without secrets."""
        emit("tool.start", tool_call_id=call.call_id, name=call.tool.name, args=call.arguments.model_dump(mode="json"))
        try:
            result = self._effects.clean(await work())
        except asyncio.CancelledError:
            _completed(call, emit, CUT)
            raise
        except Exception as error:
            # LangGraph writes a task's exception into the checkpoint, and the ledger keeps its words: both for good.
            kept = self._effects.failure(call.tool.name, error)
            _completed(call, emit, ToolResult(content=str(kept), is_error=True))
            if kept is error:
                raise
            raise kept from None
        _completed(call, emit, result)
        return result


def _completed(call: Call, emit: Emit, result: ToolResult) -> None:
    emit(
        "tool.complete",
        tool_call_id=call.call_id,
        name=call.tool.name,
        is_error=result.is_error,
        result=result.content,
        details=dict(result.details),
    )


def _call_site(site: Site, emit: Emit) -> CallSite:
    return CallSite(
        call_id=site.call_id,
        thread_id=site.thread_id,
        run_id=site.run_id,
        owner=site.owner,
        session=site.session,
        workspace=site.workspace,
        deadline=None,
        emit=emit,
    )
