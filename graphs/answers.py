"""Answers to what a parked thread asks: which approval is meant, whether the decisions fit, and what they leave behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.types import Interrupt, StateSnapshot
from pydantic import ValidationError

from checkpoints.approvals import Approvals
from checkpoints.lookup import align_approvals
from checkpoints.records import NewApproval
from checkpoints.status import ApprovalStatus
from checkpoints.store import Store
from graphs.admission import NothingWaitsError
from graphs.refusals import AnswerError, UnknownThreadError
from graphs.run import Agent
from nodes.approval import Answer, Approve, Edit, answer_to, in_order
from nodes.calls import Call, check
from nodes.effects import change_digest, planned_change
from nodes.gate import Gate
from nodes.judging import PolicyJudge

Decisions = Mapping[str, Mapping[str, Any]] | Sequence[Mapping[str, Any]]
"""An answer as it comes in at a door."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What became of a `session` or `always` answer.

    Attributes:
        tool_call_id: The call that was approved.
        tool: Its tool.
        scope: What was asked for.
        rules: Standing permissions that were made; 0 when the call has a part that no rule can name safely, so that the same
            call asks again.
    """

    tool_call_id: str
    tool: str
    scope: Literal["session", "always"]
    rules: int


class Answers:
    """Holds answers against what was asked. Starts no run."""

    def __init__(self, *, agent: Agent, store: Store, approvals: Approvals, gate: Gate, judge: PolicyJudge) -> None:
        self._agent = agent
        self._store = store
        self._approvals = approvals
        self._gate = gate
        self._judge = judge

    async def state(self, thread_id: str) -> StateSnapshot:
        """The graph's state of a thread: its values, what comes next, and what it waits for."""
        snapshot: StateSnapshot = await self._agent.aget_state({"configurable": {"thread_id": thread_id}})
        return snapshot

    async def reconciled(self, thread_id: str) -> StateSnapshot:
        """The state, with the ledger's approvals brought in line with it.

        A thread may be parked or answered by another driver of the graph (LangGraph Studio), which knows no ledger. The
        checkpoint says what waits; the ledger says who decided.
        """
        snapshot = await self.state(thread_id)
        waiting = [
            NewApproval(
                interrupt_id=interrupt.id,
                checkpoint_id=snapshot.config["configurable"]["checkpoint_id"],
                value=interrupt.value,
                digests=tuple(binding["digest"] for binding in interrupt.value.get("bindings", ())),
            )
            for interrupt in snapshot.interrupts
        ]
        await self._store.write(align_approvals, thread_id, waiting, self._store.clock.now())
        return snapshot

    async def asked(self, thread_id: str, interrupt_id: str) -> Interrupt:
        """The interrupt that an answer is for."""
        snapshot = await self.reconciled(thread_id)
        if not snapshot.values:
            raise UnknownThreadError(thread_id)
        approvals = await self._approvals.of_thread(thread_id)
        pending = {approval.interrupt_id for approval in approvals if approval.status is ApprovalStatus.PENDING}
        open_ones = [interrupt for interrupt in snapshot.interrupts if interrupt.id in pending]
        named = [interrupt for interrupt in open_ones if interrupt_id in ("", interrupt.id)]
        if not named:
            raise NothingWaitsError(thread_id, approvals[-1] if approvals else None)
        if len(named) > 1:
            raise AnswerError(thread_id, [f"Several approvals wait; name one of {[item.id for item in named]}."])
        return named[0]

    async def checked(self, thread_id: str, interrupt: Interrupt, decisions: Decisions) -> Answer:
        """Holds decisions against what was asked, with the graph's own schema, and edits against the policy.

        Raises:
            AnswerError: They do not fit; an edit that the policy denies does not either.
        """
        schema = answer_to(interrupt.value, self._gate.edit_fits)
        try:
            answer = schema.model_validate({"decisions": decisions})
        except ValidationError as error:
            raise AnswerError(thread_id, [_fault(item) for item in error.errors()]) from error
        admitted = (await self.state(thread_id)).values["admitted"]
        faults = [
            await self._gate.complaint_about_edit(
                binding["tool_call_id"], decision.edited_action.name, decision.edited_action.args, admitted, thread_id
            )
            for decision, binding in zip(answer.decisions, interrupt.value["bindings"], strict=True)
            if isinstance(decision, Edit)
        ]
        if any(faults):
            raise AnswerError(thread_id, [fault for fault in faults if fault])
        return answer

    async def moved(self, thread_id: str, interrupt: Interrupt, answer: Answer) -> str:
        """The approved call whose file is not as it was shown any more; empty when all are."""
        admitted = (await self.state(thread_id)).values["admitted"]
        asked = zip(answer.decisions, interrupt.value["action_requests"], interrupt.value["bindings"], strict=True)
        for decision, request, binding in asked:
            call = check(self._gate.catalog, binding["tool_call_id"], request["name"], request["args"])
            if not (isinstance(decision, Approve) and binding.get("change") and isinstance(call, Call)):
                continue
            if change_digest(await planned_change(call, admitted["workspace"])) != binding["change"]:
                return call.call_id
        return ""

    async def remember(self, thread_id: str, interrupt: Interrupt, answer: Answer, subject: str) -> Sequence[Granted]:
        """Makes the rules that `session` and `always` answers ask for."""
        made = []
        admitted = (await self.state(thread_id)).values["admitted"]
        asked = zip(answer.decisions, interrupt.value["action_requests"], interrupt.value["bindings"], strict=True)
        for decision, request, binding in asked:
            if isinstance(decision, Approve) and decision.remember:
                call = check(self._gate.catalog, binding["tool_call_id"], request["name"], request["args"])
                if isinstance(call, Call):
                    session = decision.remember == "session"
                    rules = await self._judge.remember(call, admitted, thread_id=thread_id, session=session, by=subject)
                    made.append(Granted(tool_call_id=call.call_id, tool=call.tool.name, scope=decision.remember, rules=rules))
        return made


def bound(decisions: Decisions, value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The decisions in the order of the calls, each saying what was shown."""
    return [_bound(decision, binding) for decision, binding in zip(in_order(decisions, value), value["bindings"], strict=True)]


def _bound(decision: Mapping[str, Any], binding: Mapping[str, Any]) -> dict[str, Any]:
    """A decision that says what was shown, so that the graph refuses it when the call or the file moved on meanwhile."""
    shown = {"tool_call_id": binding["tool_call_id"], "digest": binding["digest"]}
    if decision["type"] == "approve":
        shown["change"] = binding.get("change", "")
    return {**shown, **decision}


def _fault(item: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
