"""The runtime: one per process. Verifies admissions and owns the runs that it starts, until each has its ending."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command

from checkpoints.approvals import Approvals
from checkpoints.clock import Clock, fresh_id
from checkpoints.errors import UsageError
from checkpoints.ledger import Ledger
from checkpoints.records import ApprovalAnswer, GrantUse, NewRun, ThreadInfo
from checkpoints.records import Run as RunRecord
from checkpoints.run_errors import CheckpointMovedError, StaleFenceError
from graphs.admission import Admission, AgentInput, Grant, Preparation, Quote, QuoteAuthority
from graphs.grounds import keep_apart
from graphs.run import Agent, Run
from graphs.settlement import Settlement, names_interrupts
from nodes.context import AgentContext
from nodes.events import Events
from nodes.sandbox import Sandboxes
from nodes.state import GRAPH_VERSION


class ReviewModeError(UsageError):
    """The review mode is not one that exists, or an approval asks for another one than its thread was admitted with."""

    code = "review_mode"

    def __init__(self, asked: str, stored: str) -> None:
        self.asked = asked
        self.stored = stored
        super().__init__(f"The thread runs under review mode {stored!r} and a resume cannot change it to {asked!r}.")
        self.hint = "Answer under the stored mode; a new task may choose another one."


class JumpError(UsageError):
    """An answer that also says where the graph goes on or what is written into its state: a way round what waits."""

    code = "jump"
    hint = "Send the answer alone, or a new message."

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(f"The input for thread {thread_id} carries a jump or an update. What waits there waits still.")


class Runtime:
    """Starts runs and keeps them. Use `close` (or the client's context manager) so that nothing is left behind."""

    def __init__(
        self,
        *,
        agent: Agent,
        ledger: Ledger,
        approvals: Approvals,
        owner_id: str,
        authority: QuoteAuthority,
        settlement: Settlement,
        events: Events,
        sandboxes: Sandboxes,
        limits: Mapping[str, Any],
        kept: Sequence[Path],
        clock: Clock,
    ) -> None:
        self.authority = authority
        self._agent = agent
        self._ledger = ledger
        self._approvals = approvals
        self.owner_id = owner_id
        self._settlement = settlement
        self._events = events
        self._sandboxes = sandboxes
        self._limits = limits
        self._kept = kept
        self._clock = clock
        self._runs: dict[str, Run] = {}

    async def prepare_run(self, grant: str, value: AgentInput, context: AgentContext | None = None) -> Quote:
        """Verifies a grant against its input and the thread as it stands, and prices it.

        Raises:
            GrantTamperedError, GrantExpiredError, InputMismatchError: See `QuoteAuthority.verify`.
            StaleFenceError: The thread has had another run since the grant was signed.
            CheckpointMovedError: The thread's newest checkpoint is not the grant's.
            ReviewModeError: A resume under another mode than the stored one.
            JumpError: A command that does more than answer.
            StoreInWorkspaceError: The workspace and the store do not lie apart.
        """
        _answers_only(value)
        verified = self.authority.verify(grant, value)
        thread = await self._ledger.thread(value.checkpoint_thread_id)
        _still_there(verified.preparation, thread)
        terms = await self._terms(value, context or AgentContext())
        await asyncio.to_thread(keep_apart, Path(terms.workspace), self._kept)
        model = verified.preparation.requested_model_ref or terms.model
        return Quote(grant=verified, quote_id=fresh_id(), model=model, input=value, terms=terms.model_dump(mode="json"))

    async def start(self, admission: Admission) -> Run:
        """Starts the run that was admitted.

        Everything that can refuse it is checked again, the moving parts of it in the transaction that starts the run: of two
        processes with a grant for one checkpoint, one starts.

        Raises:
            AdmissionError: A subclass says why; nothing was started.
            ConflictError: A subclass says what moved; nothing was started.
        """
        grant = self.authority.check(admission)
        quote = admission.quote
        _answers_only(quote.input)
        answers = await self._answers(quote.input, grant)
        new = _new_run(quote, self.owner_id, self._clock.now(), await self._resumed(quote.input, answers))
        record = await self._ledger.admit(new, _use(grant), answers)
        return self._begin(record, quote.input.value, AgentContext.model_validate(quote.terms))

    def continue_run(self, record: RunRecord, graph_input: Any) -> Run:
        """Drives on a run that was taken over from a dead owner, under the terms and the deadline that it was admitted with."""
        context = AgentContext.model_validate(record.receipt["terms"])
        if record.deadline is not None:
            left = max(0.001, (record.deadline - self._clock.now()).total_seconds())
            context = context.model_copy(update={"timeout": left})
        return self._begin(record, graph_input, context)

    async def waiting_interrupts(self, thread_id: str) -> set[str]:
        """The ids of what the newest checkpoint of a thread waits for."""
        state = await self._agent.aget_state({"configurable": {"thread_id": thread_id}})
        return {interrupt.id for interrupt in state.interrupts}

    def _begin(self, record: RunRecord, graph_input: Any, context: AgentContext) -> Run:
        run = Run(
            record,
            agent=self._agent,
            graph_input=graph_input,
            context=context,
            ledger=self._ledger,
            settlement=self._settlement,
            events=self._events,
            clock=self._clock,
        )
        self._runs[run.run_id] = run
        run.begin()
        return run

    def live(self, run_id: str) -> Run | None:
        """The run, if this process has it."""
        return self._runs.get(run_id)

    def waiting_for(self, run_id: str) -> list[str]:
        """What a run that was told to stop is still waiting for: its commands that are not proven gone."""
        return self._settlement.running_for(run_id)

    async def close(self, reason: str = "the runtime was closed") -> None:
        """Cancels what still runs and waits for every ending."""
        running = [run for run in self._runs.values() if not run.stopped]
        await asyncio.gather(*(run.cancel(reason) for run in running), return_exceptions=True)
        self._runs.clear()

    async def _terms(self, value: AgentInput, context: AgentContext) -> AgentContext:
        """The context to run under.

        A resume keeps the mode, the workspace and the model of its thread. Of the rest it keeps what its caller leaves open: an
        answer that says nothing of limits lifts none.
        """
        if not isinstance(value.value, Command) and value.value is not None:
            own = {name: value for name, value in self._limits.items() if name not in context.model_fields_set}
            context = context.model_copy(update=own)
            if not context.sandbox:
                return context
            session = await self._sandboxes.open(context.sandbox, context.workspace)
            return context.model_copy(update={"workspace": session.workspace})
        state = await self._agent.aget_state({"configurable": {"thread_id": value.checkpoint_thread_id}})
        admitted = state.values.get("admitted")
        if admitted is None:
            return context
        if "review_mode" in context.model_fields_set and context.review_mode != admitted["mode"]:
            raise ReviewModeError(context.review_mode, admitted["mode"])
        context = await self._continued(value.checkpoint_thread_id, context)
        kept = {"review_mode": admitted["mode"]}
        kept |= {key: admitted[key] for key in ("workspace", "model", "sandbox", "finite", "unattended", "yolo")}
        return context.model_copy(update=kept)

    async def _continued(self, thread_id: str, context: AgentContext) -> AgentContext:
        """The terms of the thread's newest run with what a caller has set itself."""
        newest = await self._ledger.runs(thread_id=thread_id, limit=1)
        before: Mapping[str, Any] = newest[0].receipt.get("terms", {}) if newest else {}
        return AgentContext.model_validate({**before, **context.model_dump(include=context.model_fields_set)})

    async def _bare(self, value: AgentInput, resume: Any) -> dict[str, Any]:
        """An answer that names no interrupt, for the one that waits.

        Where none does, it is given to an approval that cannot exist: the ledger then refuses it, after it has looked for the
        better reasons (a used grant, a thread that moved on).
        """
        waiting = await self.waiting_interrupts(value.checkpoint_thread_id)
        return dict.fromkeys(waiting or {""}, resume)

    async def _resumed(self, value: AgentInput, answers: Sequence[ApprovalAnswer] | None) -> str:
        """The parked run that an answer goes on with; empty for new messages."""
        ids = {answer.interrupt_id for answer in answers or ()}
        asked = await self._approvals.of_thread(value.checkpoint_thread_id) if ids else ()
        return next((approval.run_id for approval in asked if approval.interrupt_id in ids), "")

    async def _answers(self, value: AgentInput, grant: Grant) -> list[ApprovalAnswer] | None:
        """The approvals that the input answers; None for new messages, which supersede whatever waits."""
        if value.value is not None and not isinstance(value.value, Command):
            return None
        if value.value is None:
            return []
        resume = value.value.resume
        by_id: Mapping[str, Any] = resume if names_interrupts(resume) else await self._bare(value, resume)
        who = grant.preparation.subject_id
        return [
            ApprovalAnswer(interrupt_id=key, decisions=answer.get("decisions", []), decided_by=who)
            for key, answer in by_id.items()
        ]


def _still_there(preparation: Preparation, thread: ThreadInfo | None) -> None:
    fence, checkpoint = (thread.fence, thread.checkpoint_id) if thread else (0, "")
    held = preparation.turn_fencing_token
    if held != fence:
        raise StaleFenceError(preparation.checkpoint_thread_id, held=held, current=fence)
    if preparation.checkpoint_snapshot_id != checkpoint:
        raise CheckpointMovedError(
            preparation.checkpoint_thread_id, expected=preparation.checkpoint_snapshot_id, found=checkpoint
        )


def _answers_only(value: AgentInput) -> None:
    command = value.value
    if isinstance(command, Command) and (command.goto or command.update is not None or command.graph is not None):
        raise JumpError(value.checkpoint_thread_id)


def _use(grant: Grant) -> GrantUse:
    return GrantUse(
        request_id=grant.request_id,
        expires_at=grant.expires_at,
        expected_fence=grant.preparation.turn_fencing_token,
        expected_checkpoint_id=grant.preparation.checkpoint_snapshot_id,
    )


def _new_run(quote: Quote, owner_id: str, now: datetime, resumes_run_id: str) -> NewRun:
    preparation = quote.grant.preparation
    receipt = {"quote_id": quote.quote_id, "turn_id": preparation.turn_id, "model": quote.model, "terms": dict(quote.terms)}
    if isinstance(quote.input.value, Mapping):
        receipt["input"] = {"messages": [_message(message) for message in quote.input.value.get("messages", ())]}
    return NewRun(
        run_id=fresh_id(),
        thread_id=preparation.checkpoint_thread_id,
        owner_id=owner_id,
        subject_id=preparation.subject_id,
        resumes_run_id=resumes_run_id,
        deadline=now + timedelta(seconds=quote.terms["timeout"]),
        receipt=receipt,
        graph_version=str(GRAPH_VERSION),
        title=_title(quote.input),
    )


def _message(message: Any) -> dict[str, Any]:
    """A message as JSON, kept with the run until its checkpoint has it: a crash before the first one must not lose the task."""
    if isinstance(message, BaseMessage):
        return {"role": message.type, "content": message.content, "id": message.id}
    return dict(message) if isinstance(message, Mapping) else {"role": "human", "content": str(message)}


def _title(value: AgentInput) -> str:
    """The first line of the task, for listings; no model is asked for one."""
    if not isinstance(value.value, Mapping):
        return ""
    messages = value.value.get("messages") or [""]
    first = messages[0]
    text = first.get("content", "") if isinstance(first, Mapping) else getattr(first, "content", first)
    return str(text).strip().splitlines()[0][:120] if str(text).strip() else ""
