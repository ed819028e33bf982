"""One run in this process: the task that drives the graph, what can stop it, and the one ending that is recorded.

The graph runs in an asyncio task of its own that is cancelled at most once, never through somebody else's cancel scope.
A second task conducts it: it waits for the graph, for a recorded cause and for the deadline, cleans up the processes that
the run started, settles the thread's history, and writes the terminal event. Whatever wants the run to stop writes a cause
into the ledger first; the first one wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from pydantic import ValidationError

from checkpoints.clock import Clock
from checkpoints.errors import CheckreinError
from checkpoints.ledger import Ledger
from checkpoints.records import FENCE_KEY, Cause, Event
from checkpoints.records import Run as RunRecord
from checkpoints.run_errors import StaleFenceError
from checkpoints.status import CauseKind, RunStatus
from graphs.recorder import Recorder
from graphs.settlement import GraphStop, Settlement
from nodes.context import AgentContext
from nodes.events import Events
from nodes.limits import WARN_AT
from nodes.models.errors import ModelDeadlineError

Agent = Any
"""A compiled agent graph. LangGraph's own type has four parameters that say nothing here."""


class RunLostError(CheckreinError):
    """The run was taken over while this process held it: another owner recorded, or will record, how it ended."""

    code = "run_lost"
    hint = "Show the run: its record says who went on with it."

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} is no longer this process's: its thread was fenced off and nothing more was written.")


class RefusedAnswerError(CheckreinError):
    """The graph refused an answer that fitted when it was given: the thread or a file moved on in between."""

    code = "answer_refused"
    hint = "The approval still waits. Look at what it asks now and answer again."

    def __init__(self, fault: str) -> None:
        self.fault = fault
        super().__init__(f"The answer does not fit what is asked now: {fault}")


class Run:
    """A live run and, once it has stopped, its outcome.

    Made by `Runtime.start`; everything about a run that is not in this process is read from the ledger.

    Attributes:
        run_id: Its name.
        thread_id: The checkpoint thread.
    """

    def __init__(
        self,
        record: RunRecord,
        *,
        agent: Agent,
        graph_input: Any,
        context: AgentContext,
        ledger: Ledger,
        settlement: Settlement,
        events: Events,
        clock: Clock,
    ) -> None:
        self.run_id = record.run_id
        self.thread_id = record.thread_id
        self._record = record
        self._agent = agent
        self._input = graph_input
        self._context = context
        self._ledger = ledger
        self._settlement = settlement
        self._events = events
        self._clock = clock
        self._recorder = Recorder(ledger, record.fencing)
        self._graph: asyncio.Task[None] | None = None
        self._conductor: asyncio.Task[RunStatus] | None = None

    @property
    def config(self) -> RunnableConfig:
        """The LangGraph config of the run. The fence travels in a key that LangGraph keeps out of stored metadata."""
        return {
            "configurable": {"thread_id": self.thread_id, FENCE_KEY: self._record.fencing},
            "metadata": {"run_id": self.run_id},
            "recursion_limit": _supersteps(self._context),
        }

    def begin(self) -> None:
        """Starts the run's tasks. Called once, by the runtime, right after the admission."""
        self._conductor = asyncio.create_task(self._conduct(), name=f"run-{self.run_id}")

    @property
    def stopped(self) -> bool:
        """True once the ending is recorded and no task of the run is left."""
        return self._conductor is not None and self._conductor.done()

    async def wait_stopped(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 (a bound on the wait, not on the run)
        """Waits until the ending is recorded and gives the outcome.

        Args:
            timeout: Seconds to wait at most, None for ever.

        Raises:
            TimeoutError: It is still running; the run itself is not touched.
            RunLostError: The thread was fenced off.
        """
        assert self._conductor is not None
        return str(await asyncio.wait_for(asyncio.shield(self._conductor), timeout))

    async def cancel(self, reason: str) -> str:
        """Records a cancel, stops graph and processes, and gives the outcome: `cancelled` unless another cause was first.

        On a run that has ended nothing changes, but for approvals that still wait: they are withdrawn. Cancelling the
        await does not undo the cancel.
        """
        await self._ledger.record_cause(self.run_id, Cause(kind=CauseKind.CANCEL, reason=reason, at=self._clock.now()))
        outcome = await self.wait_stopped()
        if outcome == RunStatus.AWAITING_INPUT:
            await self._settlement.withdraw(self._record, reason)
        return outcome

    async def stream(self, after: int = 0) -> AsyncIterator[Event]:
        """The run's events in order, from the first one above `after` to `run_terminal`; may be read again after the end."""
        async for event in self._ledger.follow(self.run_id, after=after):
            yield event

    async def _conduct(self) -> RunStatus:
        deadline = self._clock.monotonic() + self._context.timeout
        with self._events.heard_by(self.run_id, self._recorder.put, deadline):
            return await self._conducted()

    async def _conducted(self) -> RunStatus:
        graph = self._graph = asyncio.create_task(self._drive(), name=f"graph-{self.run_id}")
        stop = asyncio.create_task(self._stop_cause(), name=f"stop-{self.run_id}")
        recorder = asyncio.create_task(self._recorder.run(), name=f"recorder-{self.run_id}")
        try:
            await asyncio.wait({graph, stop, recorder}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The event loop is being torn down: the one way to be cancelled. Go through the same ending, then let it through.
            await self._ledger.record_cause(self.run_id, self._cause(CauseKind.CANCEL, "the runtime was shut down"))
            await self._end(graph, stop, recorder)
            raise
        return await self._end(graph, stop, recorder)

    async def _end(self, graph: asyncio.Task[None], stop: asyncio.Task[Cause], recorder: asyncio.Task[None]) -> RunStatus:
        if not graph.done():
            graph.cancel()
            await asyncio.wait({graph})
        stop.cancel()
        await asyncio.wait({stop})
        notes = await self._settlement.stop_processes(self.run_id)
        with suppress(StaleFenceError):
            return await self._finish(graph, notes, recorder)
        raise RunLostError(self.run_id)

    async def _finish(self, graph: asyncio.Task[None], notes: Sequence[str], recorder: asyncio.Task[None]) -> RunStatus:
        self._recorder.close()
        await asyncio.wait({recorder})
        failure = _failure_of(graph) or _failure_of(recorder)
        if isinstance(failure, StaleFenceError):
            raise failure
        if failure is not None:
            # A model call sees the run's deadline too, and may notice it a moment before this run's own timer does.
            kind = CauseKind.TIMEOUT if isinstance(failure, ModelDeadlineError) else CauseKind.FAILURE
            await self._ledger.record_cause(self.run_id, self._cause(kind, str(failure)))
        elif graph.cancelled():
            await self._ledger.record_cause(self.run_id, self._cause(CauseKind.CANCEL, "the run's task was cancelled"))
        stop = GraphStop(failure=failure, cancelled=graph.cancelled(), partial=self._recorder.partial)
        ending = await self._settlement.ending(self._agent, self.config, self._record, self._context, stop)
        receipt = await self._settlement.receipt(self._recorder.tally, self._context)
        done = await self._ledger.finish(
            self.run_id,
            self._record.fence,
            ending.outcome,
            {**ending.payload, **receipt, **({"cleanup_errors": list(notes)} if notes else {})},
            ending.approvals,
        )
        return done.status

    async def _drive(self) -> None:
        await self._take_over()
        graph_input = await self._settlement.open(self._agent, self.config, self._record, self._input)
        stream = self._agent.astream(
            graph_input,
            self.config,
            context=self._context,
            stream_mode=["custom"],
            subgraphs=True,
            durability="sync",
            version="v2",
        )
        async with aclosing(stream) as parts:
            async for _ in parts:
                pass  # events come by their own road, `nodes.events`; the stream is what drives the graph

    async def _take_over(self) -> None:
        """Counts what the run took under a former owner; a run that was just admitted has nothing yet."""
        after = 0
        while True:
            page = await self._ledger.events(self.run_id, after=after)
            for event in page.events:
                self._recorder.tally.take(event.kind, event.payload)
                after = event.seq
            if not page.has_more:
                return

    async def _stop_cause(self) -> Cause:
        waiting = asyncio.ensure_future(self._ledger.wait_cause(self.run_id))
        seconds = self._context.timeout
        early = seconds * float(WARN_AT)
        try:
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(waiting), early)
            self._recorder.put("limit_warning", {"limit": "timeout", "used": f"{early:g}", "of": f"{seconds:g}"})
            return await asyncio.wait_for(asyncio.shield(waiting), seconds - early)
        except TimeoutError:
            limit = f"the run's limit of {seconds:g} s was reached"
            return await self._ledger.record_cause(self.run_id, self._cause(CauseKind.TIMEOUT, limit))
        finally:
            waiting.cancel()

    def _cause(self, kind: CauseKind, reason: str) -> Cause:
        return Cause(kind=kind, reason=reason, at=self._clock.now())


def _supersteps(context: AgentContext) -> int:
    """LangGraph's own limit, set so that ours is always reached first: at most five supersteps belong to one turn."""
    return 5 * (context.max_turns + 2)


def _failure_of(task: asyncio.Task[None]) -> BaseException | None:
    """What the graph, or what writes its events, died of; None when it ended or was cancelled."""
    if task.cancelled():
        return None
    error = task.exception()
    if isinstance(error, ValidationError):
        return RefusedAnswerError(str(error))
    if isinstance(error, GraphRecursionError):
        return CheckreinError(f"The graph took more steps than its limits allow: {error}")
    return error
