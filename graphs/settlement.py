"""The edges of a run: what a thread needs before new input, and what is left behind when the graph has stopped.

A thread is always usable next time: every call in its history has an answer before the next model call, whatever ended the
run. A run that ends in order writes those answers itself, with what it knows; `nodes.prepare` is the net below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeGuard

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, StateSnapshot

from checkpoints.approvals import Approvals
from checkpoints.clock import Clock
from checkpoints.errors import CheckreinError
from checkpoints.ledger import Ledger
from checkpoints.records import Approval, NewApproval
from checkpoints.records import Run as RunRecord
from checkpoints.status import ApprovalStatus, CauseKind, RunStatus
from graphs.receipt import Tally
from nodes.answering import Answering
from nodes.belongings import Belongings
from nodes.calls import repaired, unanswered
from nodes.context import AgentContext

Agent = Any

ENDED = {
    ApprovalStatus.EXPIRED: (
        "The approval for this call expired without an answer. Nobody consented and it did not run. Do not try it again or "
        "reach the same end another way unless the person asks for it."
    ),
    ApprovalStatus.WITHDRAWN: "The run was cancelled while this call waited for approval. It did not run.",
    ApprovalStatus.SUPERSEDED: "The person sent a new message instead of deciding about this call. It did not run.",
}
"""What the model reads about a call whose approval ended without a decision."""

STOPPED = {
    CauseKind.CANCEL: "The run was cancelled before this call had a result. What it had started was stopped.",
    CauseKind.TIMEOUT: "The run's time was over before this call had a result. What it had started was stopped.",
}
FAILED = "The run failed before this call had a result. What it had started was stopped."


_INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStop:
    """How the graph's task ended.

    Attributes:
        failure: What it died of; None when it ended or was cancelled.
        cancelled: True when it was cancelled.
        partial: Text that the model had shown of a reply that never became whole.
    """

    failure: BaseException | None
    cancelled: bool
    partial: str

    @property
    def by_itself(self) -> bool:
        """True when the graph came to its end or to an interrupt."""
        return self.failure is None and not self.cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the graph stopped, for the terminal event.

    Attributes:
        outcome: What the graph itself reports; the ledger lets the first recorded cause overrule it.
        payload: The terminal event's payload.
        approvals: What waits for a person.
    """

    outcome: RunStatus
    payload: Mapping[str, Any]
    approvals: tuple[NewApproval, ...] = ()


class Settlement:
    """Settles threads for runs. Stateless between runs."""

    def __init__(
        self, ledger: Ledger, approvals: Approvals, belongings: Belongings, answering: Answering, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._approvals = approvals
        self._belongings = belongings
        self._answering = answering
        self._clock = clock

    async def open(self, agent: Agent, config: RunnableConfig, record: RunRecord, value: Any) -> Any:
        """Makes the thread ready and gives the input for LangGraph.

        An approval's answer is addressed to its interrupt, since LangGraph would give a bare one to whatever asks next. New
        messages find every earlier call answered, by what is known of it.
        """
        snapshot = await agent.aget_state(config)
        if isinstance(value, Command):
            return addressed(value, snapshot.interrupts)
        if (snapshot.metadata or {}).get("run_id") == record.run_id:
            return value  # this very run, taken over: LangGraph goes on where it was
        if value is not None and snapshot.values:
            await self._answer_leftovers(agent, config, snapshot, await self._endings(record.thread_id))
        return value

    def running_for(self, run_id: str) -> list[str]:
        """What a run has running, a title each."""
        return self._belongings.running_for(run_id)

    async def stop_processes(self, run_id: str) -> list[str]:
        """Stops whatever the run started and gives a note for each scope that is not proven empty."""
        return await self._belongings.stop_owner(run_id)

    async def receipt(self, tally: Tally, context: AgentContext) -> dict[str, Any]:
        """What the run took, for the terminal event."""
        return await tally.receipt(self._answering, context)

    async def ending(
        self, agent: Agent, config: RunnableConfig, record: RunRecord, context: AgentContext, stop: GraphStop
    ) -> Ending:
        """Reads where the graph stopped, writes the answers that are missing, and describes the ending."""
        snapshot: StateSnapshot = await agent.aget_state(config)
        if stop.by_itself and snapshot.interrupts:
            wait = context.approval_timeout
            return _parked(snapshot, self._clock.now() + timedelta(seconds=wait) if wait else None)
        if stop.by_itself:
            return Ending(outcome=RunStatus.COMPLETED, payload=_place(snapshot, RunStatus.COMPLETED) | _exit(snapshot))
        if stop.failure is not None and snapshot.interrupts:
            # The graph refused the answer, or died before it took it: what was asked is asked still.
            waiting = _parked(snapshot, None)
            return replace(waiting, outcome=RunStatus.FAILED, payload={**waiting.payload, **_error(stop.failure)})
        stored = await self._ledger.run(record.run_id)
        cause = stored.cause.kind if stored.cause else CauseKind.CANCEL
        await self._answer_leftovers(agent, config, snapshot, {}, STOPPED.get(cause, FAILED))
        if stop.partial:
            await _keep_partial(agent, config, stop.partial, cause)
        snapshot = await agent.aget_state(config)
        outcome = RunStatus.CANCELLED if stop.failure is None else RunStatus.FAILED
        return Ending(outcome=outcome, payload=_place(snapshot, outcome) | _error(stop.failure) | _reason(stored))

    async def withdraw(self, record: RunRecord, reason: str) -> None:
        """Ends the approvals of a parked run that is cancelled."""
        await self._ledger.withdraw(record.thread_id, reason=reason)

    async def _endings(self, thread_id: str) -> dict[str, str]:
        return {
            binding["tool_call_id"]: ENDED[approval.status]
            for approval in await self._approvals.of_thread(thread_id)
            if approval.status in ENDED
            for binding in _bindings(approval)
        }

    async def _answer_leftovers(
        self,
        agent: Agent,
        config: RunnableConfig,
        snapshot: StateSnapshot,
        reasons: Mapping[str, str],
        default: str = FAILED,
    ) -> None:
        messages: list[AnyMessage] = list(snapshot.values.get("messages", ()))
        if not unanswered(messages):
            return
        done = [message for task in snapshot.tasks for message in _results(task.result)]
        update = done + repaired([*messages, *done], reasons, default)
        await agent.aupdate_state(_unnamed(config), {"messages": update}, as_node="tool")


def addressed(command: Command[Any], interrupts: Sequence[Interrupt]) -> Command[Any]:
    """A resume whose answer names its interrupt. One that does already is left as it is."""
    answer = command.resume
    ids = {interrupt.id for interrupt in interrupts}
    if names_interrupts(answer):
        return command
    if len(ids) != 1:
        raise CheckreinError(f"{len(ids)} approvals wait here, so an answer must name the one that it is for: {sorted(ids)}.")
    return Command(resume={next(iter(ids)): answer})


def names_interrupts(answer: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether an answer is a map from interrupt ids (32 hex digits, as LangGraph makes them) to answers."""
    return isinstance(answer, Mapping) and bool(answer) and all(_INTERRUPT_ID.fullmatch(str(key)) for key in answer)


def _bindings(approval: Approval) -> Sequence[Mapping[str, Any]]:
    return approval.value.get("bindings", ()) if isinstance(approval.value, Mapping) else ()


def _results(result: Any) -> list[ToolMessage]:
    """The answers that finished tasks of an unfinished step have already given."""
    messages = result.get("messages", ()) if isinstance(result, Mapping) else ()
    return [message for message in messages if isinstance(message, ToolMessage)]


async def _keep_partial(agent: Agent, config: RunnableConfig, partial: str, cause: CauseKind) -> None:
    """Keeps what the person has already seen of a reply that was cut off, marked as such and without its calls."""
    message = AIMessage(content=partial, response_metadata={"interrupted": str(cause)})
    await agent.aupdate_state(_unnamed(config), {"messages": [message]}, as_node="model")


def _unnamed(config: RunnableConfig) -> RunnableConfig:
    """The config without the run's id.

    LangGraph takes input under the id of the newest checkpoint for a continuation, and
    would drop the messages that follow this update.
    """
    return {"configurable": config["configurable"]}


def _place(snapshot: StateSnapshot, outcome: RunStatus) -> dict[str, Any]:
    where = snapshot.config.get("configurable", {})
    return {
        "outcome": str(outcome),
        "checkpoint_thread_id": where.get("thread_id", ""),
        "checkpoint_id": where.get("checkpoint_id", ""),
        "checkpoint_ns": where.get("checkpoint_ns", ""),
        "pending_interrupts": [],
    }


def _parked(snapshot: StateSnapshot, expires_at: datetime | None) -> Ending:
    pending = [{"id": interrupt.id, "value": interrupt.value} for interrupt in snapshot.interrupts]
    place = _place(snapshot, RunStatus.AWAITING_INPUT)
    approvals = tuple(
        NewApproval(
            interrupt_id=interrupt.id,
            checkpoint_id=place["checkpoint_id"],
            checkpoint_ns=place["checkpoint_ns"],
            value=interrupt.value,
            digests=tuple(binding["digest"] for binding in interrupt.value.get("bindings", ())),
            expires_at=expires_at,
        )
        for interrupt in snapshot.interrupts
    )
    payload = place | {"pending_interrupts": pending}
    return Ending(outcome=RunStatus.AWAITING_INPUT, payload=payload, approvals=approvals)


def _exit(snapshot: StateSnapshot) -> dict[str, Any]:
    reason = snapshot.values.get("exit_reason", "")
    messages = snapshot.values.get("messages", ())
    last = messages[-1] if messages else None
    text = last.text if isinstance(last, AIMessage) else ""
    return {
        "completed": not reason,
        "partial": bool(reason),
        "turn_exit_reason": reason or "finished",
        "final_text": text,
    }


def _error(failure: BaseException | None) -> dict[str, Any]:
    if failure is None:
        return {}
    if isinstance(failure, CheckreinError):
        return {"error": failure.record()}
    return {
        "error": {
            "code": "internal",
            "message": f"{type(failure).__name__}: {failure}",
            "hint": "This is a fault of Checkrein.",
        }
    }


def _reason(stored: RunRecord) -> dict[str, Any]:
    return {"cause": str(stored.cause.kind), "reason": stored.cause.reason} if stored.cause else {}
