"""A native command as a subgraph: `spawn -> watch -> reap`. Cancelling the run tears it down.

A live process cannot be stored, so the checkpointed state holds only the key of its scope, and each step writes what it
learned into the effect journal before it hands on. A step that is entered again after a crash of the runtime finds no scope
under that key and goes back to `spawn`, where the journal says what is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from langgraph.runtime import Runtime
from langgraph.types import Command

from nodes.calls import Call
from nodes.context import AgentContext
from nodes.effects import Effects, Site, site_of
from nodes.events import emitter
from nodes.gate import Gate, answer_of
from nodes.processes.errors import ProcessesError
from nodes.processes.processes import Processes
from nodes.processes.scope import Scope, outlast
from nodes.processes.spec import Confinement, ScopeSpec
from nodes.processes.verdict import Reason
from nodes.state import NativeState, ToolTask
from nodes.tools.execute import Execute, result_of, shell_argv
from nodes.tools.tool import Emit, ToolResult

NEVER_BEGAN = "The run was stopped while this command was being started; whatever had begun of it was killed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every command of this runtime is given.

    Attributes:
        environment: The child's whole environment; an allow-list, so that no secret of the runtime's reaches it.
        spill: Folder, outside every workspace, for outputs that are too large to keep.
        confine: What a command may touch, by its workspace; None where it may touch everything.
    """

    environment: Callable[[], Mapping[str, str]]
    spill: Path
    confine: Callable[[str], Confinement | None]


class Native:
    """The subgraph's nodes and the commands that they have running."""

    def __init__(self, gate: Gate, effects: Effects, processes: Processes, surroundings: Surroundings) -> None:
        self._gate = gate
        self._effects = effects
        self._processes = processes
        self._surroundings = surroundings
        self._scopes: dict[str, tuple[str, Scope]] = {}
        self._settling: dict[str, set[asyncio.Task[None]]] = {}

    async def spawn(self, state: NativeState, runtime: Runtime[AgentContext]) -> Command[Literal["watch", "__end__"]]:
        """Starts the command, unless the gate refuses it or the journal has its result already."""
        task = state["task"]
        call = await self._gate.admits(task)
        if isinstance(call, str):
            return _done(task, ToolResult(content=call, is_error=True))
        site = site_of(task)
        known = await self._effects.enter(call, site)
        if known is not None:
            return _done(task, known)
        emit = emitter(runtime)
        emit("tool.start", tool_call_id=task["call_id"], name=task["name"], args=task["args"])
        try:
            scope = await self._start(call, site)
        except ProcessesError as error:
            result = ToolResult(content=f"The command did not start: {error} {error.hint}".strip(), is_error=True)
            await self._effects.finish(site, result)
            return _done(task, result)
        except asyncio.CancelledError:
            await self._settle(site, self._effects.finish(site, ToolResult(content=NEVER_BEGAN, is_error=True)))
            raise
        self._scopes[scope.identity.tag] = (site.owner, scope)
        async with self._torn_down_when_cancelled(site, scope):
            await self._effects.identify(site, scope.identity.record())
        return Command(update={"scope": scope.identity.tag}, goto="watch")

    async def watch(self, state: NativeState, runtime: Runtime[AgentContext]) -> Command[Literal["reap", "spawn"]]:
        """Passes live output on and waits for the verdict, which it journals.

        A cancellation kills the whole scope, journals that, and only then goes through.
        """
        task = state["task"]
        _, scope = self._scopes.get(state["scope"], ("", None))
        if scope is None:
            return Command(goto="spawn")
        site = site_of(task)
        async with self._torn_down_when_cancelled(site, scope):
            await _pass_on(scope, task["call_id"], emitter(runtime))
            await scope.wait()
        await self._effects.finish(site, result_of(await scope.wait(), scope.output, scope.spec.timeout))
        return Command(goto="reap")

    async def reap(self, state: NativeState, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        """Turns the journalled result into the call's answer and lets go of the scope."""
        task = state["task"]
        self._scopes.pop(state["scope"], None)
        result = await self._effects.enter(self._gate.checked(task), site_of(task))
        assert result is not None
        emitter(runtime)(
            "tool.complete",
            tool_call_id=task["call_id"],
            name=task["name"],
            is_error=result.is_error,
            result=result.content,
            **result.details,
        )
        return {"messages": [answer_of(task, result)]}

    def running_for(self, owner: str) -> list[str]:
        """The commands that a run has running, by their titles."""
        return [scope.title for holder, scope in self._scopes.values() if holder == owner and scope.verdict is None]

    async def stop_owner(self, owner: str) -> list[str]:
        """Ends whatever a run still has running and gives a note for each scope that is not proven empty.

        Called after the run's graph task has ended, since LangGraph may end a run before a cancelled node's clean-up did.
        """
        mine = [(tag, scope) for tag, (holder, scope) in self._scopes.items() if holder == owner]
        verdicts = await asyncio.gather(*(scope.stop(Reason.OWNER_ENDED) for _, scope in mine))
        await asyncio.gather(*self._settling.pop(owner, ()))
        for tag, _ in mine:
            self._scopes.pop(tag, None)
        return [f"{verdict.reason}: containment lost, processes may be left" for verdict in verdicts if not verdict.empty]

    async def _start(self, call: Call, site: Site) -> Scope:
        arguments = call.arguments
        assert isinstance(arguments, Execute)
        spec = ScopeSpec(
            argv=shell_argv(arguments.command),
            cwd=site.workspace,
            env=self._surroundings.environment(),
            timeout=arguments.timeout,
            confinement=self._surroundings.confine(site.workspace),
            spill=self._surroundings.spill / f"{site.thread_id}-{site.call_id}.out",
            title=arguments.command[:200],
        )
        return await self._processes.start(spec)

    @asynccontextmanager
    async def _torn_down_when_cancelled(self, site: Site, scope: Scope) -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await self._settle(site, self._abandon(site, scope))
            raise

    async def _abandon(self, site: Site, scope: Scope) -> None:
        verdict = await scope.stop(Reason.CANCEL)
        await self._effects.finish(site, result_of(verdict, scope.output, scope.spec.timeout))

    async def _settle(self, site: Site, work: Coroutine[Any, Any, None]) -> None:
        """Does the clean-up of a cancelled step in a task that `stop_owner` waits for, should the step be cut short itself."""
        task = asyncio.create_task(work, name=f"settle-{site.call_id}")
        self._settling.setdefault(site.owner, set()).add(task)
        await outlast(task)


async def _pass_on(scope: Scope, call_id: str, emit: Emit) -> None:
    async with aclosing(scope.lines()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            emit("output", tool_call_id=call_id, text=batch.text, skipped=batch.skipped)


def _done(task: ToolTask, result: ToolResult) -> Command[Literal["watch", "__end__"]]:
    return Command(update={"messages": [answer_of(task, result)]}, goto="__end__")
