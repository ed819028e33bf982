"""The verbs that every door calls: submit, decide, cancel, list, show, follow, delete.

A door (command line, Python, Studio's own buttons) translates and holds no logic. Everything that starts a run goes through
one road: a signed grant, a quote, an admission.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.types import Command, StateSnapshot

from checkpoints.approvals import Approvals, Rule
from checkpoints.clock import fresh_id
from checkpoints.ledger import Ledger
from checkpoints.lookup import SHORTEST_PREFIX, threads_named
from checkpoints.records import Approval, Cause, Event, Note, ThreadInfo
from checkpoints.records import Run as RunRecord
from checkpoints.retention import Retention
from checkpoints.sessions import SandboxSession
from checkpoints.status import CauseKind, RunStatus
from checkpoints.store import Store
from graphs.admission import AgentInput, Preparation
from graphs.answers import Answers, Decisions, Granted, bound
from graphs.keeping import Keeping
from graphs.recovery import Recovery
from graphs.refusals import (
    AmbiguousNameError,
    AnswerError,
    TaskError,
    UnknownRuleError,
    UnknownSessionError,
    UnknownThreadError,
)
from graphs.run import Agent, Run
from graphs.runtime import Runtime
from nodes.belongings import Belongings
from nodes.context import AgentContext
from nodes.gate import Gate
from nodes.judging import PolicyJudge
from nodes.sandbox import Sandboxes

Named = TypeVar("Named")

MAX_TASK = 1_000_000
"""Characters that a task may have: some 250,000 tokens, the window of a large model. More is refused before anything starts."""


LOOK_AGAIN = 0.1
"""Seconds between two looks at a run of another process that was told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadView:
    """What a person sees of one thread.

    Attributes:
        info: The thread.
        runs: Its runs, newest first.
        pending: What waits for a decision.
        messages: The conversation.
        notes: What came too late to be an event, by run: later causes, endings of approvals.
    """

    info: ThreadInfo
    runs: tuple[RunRecord, ...]
    pending: tuple[Approval, ...]
    messages: tuple[AnyMessage, ...]
    notes: Mapping[str, tuple[Note, ...]] = field(default_factory=dict)


class Service:
    """The verbs over one store and one runtime."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        agent: Agent,
        store: Store,
        ledger: Ledger,
        approvals: Approvals,
        gate: Gate,
        judge: PolicyJudge,
        recovery: Recovery,
        sandboxes: Sandboxes,
        belongings: Belongings,
        retention: Retention,
    ) -> None:
        self.runtime = runtime
        self.agent = agent
        self.store = store
        self._ledger = ledger
        self._approvals = approvals
        self._judge = judge
        self._answers = Answers(agent=agent, store=store, approvals=approvals, gate=gate, judge=judge)
        self._recovery = recovery
        self._sandboxes = sandboxes
        self._belongings = belongings
        self.retention = retention
        self.keeping = Keeping(store, ledger, approvals, retention)

    async def submit(self, task: str, *, thread_id: str = "", context: AgentContext | None = None, subject: str = "") -> Run:
        """Starts a run with a new message, on a fresh thread when none is named.

        Raises:
            TaskError: Empty, or longer than `MAX_TASK`.
            ThreadBusyError: A run is live on the thread.
        """
        if not task.strip():
            raise TaskError("The task is empty; say what the agent is to do.")
        if len(task) > MAX_TASK:
            raise TaskError(
                f"The task has {len(task):,} characters and {MAX_TASK:,} is the limit; put the text into a file in the "
                "workspace and let the agent read it."
            )
        value = AgentInput(value={"messages": [HumanMessage(task)]}, checkpoint_thread_id=thread_id or fresh_id())
        return await self._start(value, context or AgentContext(), subject)

    async def decide(
        self,
        thread_id: str,
        decisions: Decisions,
        *,
        interrupt_id: str = "",
        context: AgentContext | None = None,
        subject: str = "",
        granted: Callable[[Granted], None] | None = None,
    ) -> Run:
        """Answers what a parked thread asks and starts the run that goes on with it.

        Args:
            thread_id: The thread.
            decisions: By tool call id; or a list in the order of the calls, or in any order when each names its call.
            interrupt_id: Which approval is meant, where several wait.
            context: The terms that a resume may choose: its limits.
            subject: Who decides.
            granted: Told what became of each answer that asked to be remembered, before this returns.

        Raises:
            UnknownThreadError: No such thread.
            NothingWaitsError: It does not wait for anything.
            AnswerError: The decisions do not fit; the approval stays pending.
            ApprovalConflictError: Somebody else was first, or the approval expired, was withdrawn or superseded.
        """
        # The thread as it is before anything is looked at: whoever moves it from here on makes the admission fail.
        thread = await self._ledger.thread(thread_id)
        interrupt = await self._answers.asked(thread_id, interrupt_id)
        answer = await self._answers.checked(thread_id, interrupt, decisions)
        if moved := await self._answers.moved(thread_id, interrupt, answer):
            await (await self.continue_thread(thread_id)).wait_stopped()  # asks again, with the change as it would be now
            raise AnswerError(
                thread_id, [f"The file that {moved} changes is not as it was shown any more; look at the change as it is now."]
            )
        resume: Mapping[str, Any] = {"decisions": bound(decisions, interrupt.value)}
        value = AgentInput(value=Command(resume={interrupt.id: resume}), checkpoint_thread_id=thread_id)
        run = await self._start(value, context or AgentContext(), subject, thread)
        for made in await self._answers.remember(thread_id, interrupt, answer, subject):
            if granted is not None:
                granted(made)
        return run

    async def sessions(self) -> tuple[SandboxSession, ...]:
        """The sandbox sessions, last used first."""
        return await self._sandboxes.list()

    async def delete_session(self, session_id: str) -> bool:
        """Ends what runs in a session, forgets it, and removes its folder if it was made here; False if there is none."""
        found = next((session for session in await self._sandboxes.list() if session.session_id == session_id), None)
        if found is None:
            return False
        await self._belongings.stop_owner(found.key)
        return await self._sandboxes.delete(session_id)

    async def continue_thread(self, thread_id: str, *, context: AgentContext | None = None, subject: str = "") -> Run:
        """Goes on from a thread's newest checkpoint without new input: after a cancel, or after a change of the state.

        Raises:
            UnknownThreadError: No such thread.
            ThreadBusyError: A run is live on it.
        """
        known = await self.find_thread(thread_id)
        return await self._start(AgentInput(value=None, checkpoint_thread_id=known), context or AgentContext(), subject)

    async def cancel(self, name: str, reason: str) -> str:
        """Cancels the live run of a thread, or a run by its id, wherever it runs; gives the outcome.

        A parked thread's approvals are withdrawn; its run's outcome stays `awaiting_input`. A run of another process is
        cancelled through the ledger and waited for. Harmless on a run that has ended.

        Raises:
            UnknownThreadError: No such run or thread.
        """
        record = await self.find_run(name)
        live = self.runtime.live(record.run_id)
        if live is not None:
            return await live.cancel(reason)
        if record.status is RunStatus.AWAITING_INPUT:
            await self._ledger.withdraw(record.thread_id, reason=reason)
            return str(record.status)
        await self._ledger.record_cause(record.run_id, Cause(kind=CauseKind.CANCEL, reason=reason, at=self.store.clock.now()))
        return await self._ended_elsewhere(record)

    def waiting_for(self, run_id: str) -> list[str]:
        """What a run of this process that was told to stop still waits for, a title each."""
        return self.runtime.waiting_for(run_id)

    async def list(self, *, limit: int = 100) -> tuple[ThreadInfo, ...]:
        """Threads, last touched first."""
        return await self._ledger.threads(limit=limit)

    async def inbox(self) -> tuple[Approval, ...]:
        """Everything in the store that waits for a person."""
        return await self._approvals.inbox()

    async def rules(self) -> tuple[Rule, ...]:
        """The standing permissions that `session` and `always` answers gave and nobody took back, oldest first."""
        return await self._judge.granted()

    async def find_rule(self, name: str) -> Rule:
        """The rule in force that a full or shortened id means.

        Raises:
            UnknownRuleError: None does.
            AmbiguousNameError: Several do.
        """
        found = _named(name, {rule.rule_id: rule for rule in await self.rules()})
        if found is None:
            raise UnknownRuleError(name)
        return found

    async def find_session(self, name: str) -> SandboxSession:
        """The sandbox session that a full or shortened id, or its key, means.

        Raises:
            UnknownSessionError: None does.
            AmbiguousNameError: Several do.
        """
        sessions = await self.sessions()
        keyed = next((session for session in sessions if session.key == name), None)
        found = keyed or _named(name, {session.session_id: session for session in sessions})
        if found is None:
            raise UnknownSessionError(name)
        return found

    async def revoke_rule(self, rule_id: str) -> bool:
        """Takes a standing permission back; the next such call asks again. False when there is none of this id."""
        return await self._judge.revoke(rule_id)

    async def show(self, name: str) -> ThreadView:
        """One thread whole, by its own id or that of one of its runs; a unique beginning of an id is enough.

        Raises:
            UnknownThreadError: No such thread.
        """
        info = await self.thread_info(name)
        thread_id = info.thread_id
        state = await self._answers.reconciled(thread_id)
        runs = await self._ledger.runs(thread_id=thread_id)
        return ThreadView(
            info=info,
            runs=runs,
            notes={run.run_id: await self._ledger.notes(run.run_id) for run in runs},
            pending=await self._approvals.of_thread(thread_id, pending=True),
            messages=tuple(state.values.get("messages", ())),
        )

    async def knows(self, thread_id: str) -> bool:
        """Whether a thread of exactly this id is in the store."""
        return await self._ledger.thread(thread_id) is not None

    async def thread_info(self, name: str) -> ThreadInfo:
        """One thread as a quote sees it: its fence and its newest checkpoint.

        Raises:
            UnknownThreadError: No such thread.
        """
        info = await self._ledger.thread(await self.find_thread(name))
        if info is None:
            raise UnknownThreadError(name)
        return info

    async def state(self, thread_id: str) -> StateSnapshot:
        """The graph's state of a thread: its values, what comes next, and what it waits for."""
        return await self._answers.state(thread_id)

    def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """A run's events, stored and then live, to its end; from any process."""
        return self._ledger.follow(run_id, after=after)

    async def delete(self, name: str) -> str:
        """Deletes a thread that no run is live on, with everything that is stored of it; gives its id.

        Raises:
            ThreadBusyError: A run is live on it.
        """
        thread_id = await self.find_thread(name)
        await self.retention.delete_thread(thread_id)
        return thread_id

    async def find_thread(self, name: str) -> str:
        """The thread that a full or shortened thread or run id means.

        Raises:
            UnknownThreadError: None does.
        """
        found = await self.store.read(threads_named, name)
        if not found:
            raise UnknownThreadError(name)
        if len(found) > 1:
            raise AmbiguousNameError(name)
        return found[0]

    async def find_run(self, name: str) -> RunRecord:
        """The run that a run id means, or the newest run of a thread.

        Raises:
            UnknownThreadError: There is none.
        """
        thread_id = await self.find_thread(name)
        runs = await self._ledger.runs(thread_id=thread_id)
        exact = [run for run in runs if run.run_id.startswith(name)]
        if not runs:
            raise UnknownThreadError(name)
        return exact[0] if exact else runs[0]

    async def _ended_elsewhere(self, record: RunRecord) -> str:
        """Waits for a run of another process to end; ends it here once its owner is found dead."""
        while not (now := await self._ledger.run(record.run_id)).status.final:
            if await self._recovery.is_orphan(now):
                return str((await self._recovery.settle(now)).status)
            await asyncio.sleep(LOOK_AGAIN)
        return str(now.status)

    async def _release(self, thread: ThreadInfo) -> ThreadInfo | None:
        """Settles the live run of a thread whose owner is dead, so that the thread can be used."""
        live = await self._ledger.run(thread.live_run_id)
        if await self._recovery.is_orphan(live):
            await self._recovery.settle(live)
        return await self._ledger.thread(thread.thread_id)

    async def recover(self) -> Sequence[Run]:
        """Continues every run of the store whose owner is dead, and gives the runs that go on in this process."""
        return await self._recovery.sweep()

    async def settle_orphans(self) -> tuple[RunRecord, ...]:
        """Ends every run of the store whose owner is dead, each as its first durable cause says, and gives their records."""
        live = await self._ledger.runs(status=RunStatus.RUNNING, limit=10_000)
        return tuple([await self._recovery.settle(run) for run in live if await self._recovery.is_orphan(run)])

    async def _start(self, value: AgentInput, context: AgentContext, subject: str, thread: ThreadInfo | None = None) -> Run:
        thread = thread or await self._ledger.thread(value.checkpoint_thread_id)
        if thread is not None and thread.live_run_id:
            thread = await self._release(thread)
        preparation = Preparation(
            turn_id=fresh_id(),
            thread_id=value.checkpoint_thread_id,
            subject_id=subject,
            requested_model_ref=context.model,
            gateway_input_digest=value.digest(),
            checkpoint_thread_id=value.checkpoint_thread_id,
            checkpoint_snapshot_id=thread.checkpoint_id if thread else "",
            turn_fencing_token=thread.fence if thread else 0,
        )
        authority = self.runtime.authority
        quote = await self.runtime.prepare_run(authority.sign_preparation(preparation), value, context)
        return await self.runtime.start(authority.accept(quote))


def _named(name: str, known: Mapping[str, Named]) -> Named | None:
    """What an id, or the beginning of one, means; None when nothing does."""
    if name in known:
        return known[name]
    found = [key for key in known if key.startswith(name)] if len(name) >= SHORTEST_PREFIX else []
    if len(found) > 1:
        raise AmbiguousNameError(name)
    return known[found[0]] if found else None
