"""A native command as a subgraph: `spawn -> watch -> reap`. Cancelling the run tears it down.

A live process cannot be stored, so the checkpointed state holds only the key of its scope, and each step writes what it
learned into the effect journal before it hands on. A step that is entered again after a crash of the runtime finds no scope
under that key and goes back to `spawn`, where the journal says what is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from langgraph.runtime import Runtime
from langgraph.types import Command

from checkpoints.artifacts import Artifacts
from checkpoints.clock import fresh_id
from nodes.calls import Call
from nodes.context import AgentContext
from nodes.effects import NEVER_BEGAN, Effects, Site, site_of
from nodes.events import Events
from nodes.gate import Gate, answer_of
from nodes.processes.errors import ProcessesError
from nodes.processes.output import Output
from nodes.processes.processes import Processes
from nodes.processes.registry import Registry
from nodes.processes.scope import Scope, outlast
from nodes.processes.spec import Confinement, ScopeSpec
from nodes.processes.verdict import Reason
from nodes.sandbox import Sandboxes
from nodes.state import NativeState, ToolTask
from nodes.tools.execute import NO_SESSION, Execute, result_of, shell_argv, started_result
from nodes.tools.live import LiveOutput
from nodes.tools.tool import Emit, ToolResult

LOST = "containment lost, processes may be left"

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class _Held:
    """A command in the foreground, where it runs, and where its end is to be told."""

    task: ToolTask
    site: Site
    scope: Scope
    emit: Emit


class Native:
    """The subgraph's nodes and the commands that they have running."""

    def __init__(
        self,
        gate: Gate,
        effects: Effects,
        events: Events,
        processes: Processes,
        registry: Registry,
        sandboxes: Sandboxes,
        surroundings: Surroundings,
        artifacts: Artifacts,
    ) -> None:
        self._gate = gate
        self._effects = effects
        self._events = events
        self._processes = processes
        self._registry = registry
        self._sandboxes = sandboxes
        self._surroundings = surroundings
        self._artifacts = artifacts
        self._held: dict[str, _Held] = {}
        self._settling: dict[str, set[asyncio.Task[None]]] = {}
        self._notes: dict[str, list[str]] = {}

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
        emit = self._events.emitter(runtime)
        emit("tool.start", tool_call_id=task["call_id"], name=task["name"], args=task["args"])
        try:
            await self._sandboxes.enter(site.session)
            started = await self._started(call, site)
        except BaseException:
            await self._settle(site, self._finish(task, site, emit, ToolResult(content=NEVER_BEGAN, is_error=True)))
            raise
        if isinstance(started, ToolResult):
            result = self._effects.clean(started)
            await self._settle(site, self._finish(task, site, emit, result))
            return _done(task, result)
        tag = started.identity.tag
        self._held[tag] = _Held(task, site, started, emit)
        async with self._torn_down_when_it_fails(tag):
            await self._effects.identify(site, started.identity.record())
        return Command(update={"scope": tag}, goto="watch")

    async def watch(self, state: NativeState, runtime: Runtime[AgentContext]) -> Command[Literal["reap", "spawn"]]:
        """Passes live output on and waits for the verdict, which it journals.

        A cancellation kills the whole scope, journals that, and only then goes through.
        """
        tag = state["scope"]
        held = self._held.get(tag)
        if held is None:
            return Command(goto="spawn")
        async with self._torn_down_when_it_fails(tag):
            await _pass_on(held.scope, held.site.call_id, held.emit)
            await held.scope.wait()
        await self._settle(held.site, self._let_go(tag))
        return Command(goto="reap")

    async def reap(self, state: NativeState, runtime: Runtime[AgentContext]) -> dict[str, Any]:
        """Turns the journalled result into the call's answer."""
        task = state["task"]
        result = await self._effects.enter(self._gate.checked(task), site_of(task))
        assert result is not None
        return {"messages": [answer_of(task, result)]}

    def running_for(self, owner: str) -> list[str]:
        """The commands that an owner has in the foreground, by their titles."""
        mine = [held.scope for held in self._held.values() if held.site.owner == owner]
        return [scope.title for scope in mine if scope.verdict is None]

    async def stop_owner(self, owner: str) -> list[str]:
        """Ends whatever an owner still has in the foreground and gives a note for each scope that is not proven empty.

        Called after the run's graph task has ended, since LangGraph may end a run before a cancelled node's clean-up did.
        """
        mine = {tag: held for tag, held in self._held.items() if held.site.owner == owner}
        await asyncio.gather(*(held.scope.stop(Reason.OWNER_ENDED) for held in mine.values()))
        ended = [self._settle(held.site, self._let_go(tag)) for tag, held in mine.items()]
        await asyncio.gather(*ended, *self._settling.get(owner, ()), return_exceptions=True)  # what failed is in the notes
        return self._notes.pop(owner, [])

    async def _started(self, call: Call, site: Site) -> Scope | ToolResult:
        """The command's scope; or a result, when it did not start or runs in the background."""
        arguments = call.arguments
        assert isinstance(arguments, Execute)
        spec = self._spec(arguments, site)
        try:
            if not arguments.background:
                return await self._processes.start(spec)
            owner = site.owner if arguments.keep == "run" else site.session
            if not owner:
                return ToolResult(content=NO_SESSION, is_error=True)
            return started_result(await self._registry.start(owner, replace(spec, timeout=None, spill=None)))
        except ProcessesError as error:
            return ToolResult(content=f"The command did not start: {error} {error.hint}".strip(), is_error=True)

    def _spec(self, arguments: Execute, site: Site) -> ScopeSpec:
        return ScopeSpec(
            argv=shell_argv(arguments.command),
            cwd=site.workspace,
            env=self._surroundings.environment(),
            timeout=arguments.timeout,
            confinement=self._surroundings.confine(site.workspace),
            spill=self._surroundings.spill / f"{fresh_id()}.out",
            title=arguments.command[:200],
        )

    async def _let_go(self, tag: str) -> None:
        """Journals how a scope ended and forgets it. Once per scope, whoever comes first."""
        held = self._held.pop(tag, None)
        if held is None:
            return
        verdict = await held.scope.wait()
        if not verdict.contained:
            self._note(held.site.owner, f"call {held.site.call_id}: {LOST}")
        output = held.scope.output
        artifact = await self._kept(output, held.site.thread_id)
        result = result_of(verdict, output, held.scope.spec.timeout, artifact)
        await self._finish(held.task, held.site, held.emit, self._effects.clean(result))

    async def _kept(self, output: Output, thread_id: str) -> str:
        """The digest of a full output that was too long for the result; empty when there is none or the disk refuses it."""
        if output.spill is None:
            return ""
        try:
            return await self._artifacts.adopt(output.spill, thread_id)
        except OSError as error:
            logger.warning("the full output of a command could not be kept: %s", error)
            return ""

    async def _finish(self, task: ToolTask, site: Site, emit: Emit, result: ToolResult) -> None:
        """Keeps a result, tells of it, and takes the call out of its session, which it has entered before it started."""
        try:
            await self._effects.finish(site, result)
            _completed(emit, task, result)
        finally:
            await self._sandboxes.leave(site.session)

    @asynccontextmanager
    async def _torn_down_when_it_fails(self, tag: str) -> AsyncIterator[None]:
        """A cancellation above all; but a store that refuses the next step must not leave the command running either."""
        try:
            yield
        except BaseException:
            held = self._held.get(tag)
            if held is not None:
                await self._settle(held.site, self._abandon(tag, held.scope))
            raise

    async def _abandon(self, tag: str, scope: Scope) -> None:
        await scope.stop(Reason.CANCEL)
        await self._let_go(tag)

    async def _settle(self, site: Site, work: Coroutine[Any, Any, None]) -> None:
        """Does the clean-up of a cancelled step in a task that `stop_owner` waits for, should the step be cut short itself."""
        task = asyncio.create_task(work, name=f"settle-{site.call_id}")
        self._settling.setdefault(site.owner, set()).add(task)
        task.add_done_callback(lambda done: self._settled(site, done))
        await outlast(task)

    def _settled(self, site: Site, task: asyncio.Task[None]) -> None:
        tasks = self._settling[site.owner]
        tasks.discard(task)
        if not tasks:
            del self._settling[site.owner]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._note(site.owner, f"call {site.call_id}: how it ended could not be recorded: {error}")

    def _note(self, owner: str, text: str) -> None:
        self._notes.setdefault(owner, []).append(text)


async def _pass_on(scope: Scope, call_id: str, emit: Emit) -> None:
    live = LiveOutput(emit, call_id)
    async with aclosing(scope.lines()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            live.put(batch.text, batch.skipped)
    live.close()


def _completed(emit: Emit, task: ToolTask, result: ToolResult) -> None:
    emit(
        "tool.complete",
        tool_call_id=task["call_id"],
        name=task["name"],
        is_error=result.is_error,
        result=result.content,
        details=dict(result.details),
    )


def _done(task: ToolTask, result: ToolResult) -> Command[Literal["watch", "__end__"]]:
    return Command(update={"messages": [answer_of(task, result)]}, goto="__end__")
