"""The one gate between what the model asked for and what runs: judged at routing, and again at execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.types import Send

from nodes.approval import AnyDecision, Edit, Reject, Respond
from nodes.calls import MAX_SHOWN_ARGUMENTS, Call, UnfitCall, answer, check
from nodes.processes.spec import Confinement
from nodes.state import Admitted, PresetAnswer, ToolTask
from nodes.tools.tool import Tool, ToolResult

TOOL, NATIVE, APPROVAL = "tool", "native", "approval"
NO_CHANGES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the policy says of one call, and why, in a sentence for people and for the model."""

    verdict: Literal["allow", "ask", "deny"]
    reason: str


class Judge(Protocol):
    """The policy as the gate sees it."""

    async def __call__(self, call: Call, admitted: Admitted, thread_id: str) -> Ruling:
        """Rules on one call. Called when a reply is routed, when an edit is checked, and once more before execution."""

    async def notes(self, admitted: Admitted) -> tuple[str, ...]:
        """What a person should know about the rules of a task, for example that some were left out. Mostly nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Knows the tools and the policy, and turns calls into tasks.

    Attributes:
        catalog: The tools by name.
        judge: The policy.
        confine: What commands in a workspace may touch, for whoever reads an approval; None where they may touch everything.
    """

    catalog: Mapping[str, Tool]
    judge: Judge
    confine: Callable[[str], Confinement | None]

    async def asks(self, calls: Sequence[Call | UnfitCall], admitted: Admitted) -> list[tuple[Call, str]]:
        """The calls that wait for a person, each with the reason. For use inside a step of the graph."""
        fit = [call for call in calls if isinstance(call, Call)]
        ruled = [(call, await self.judge(call, admitted, current_thread())) for call in fit]
        return [(call, ruling.reason) for call, ruling in ruled if ruling.verdict == "ask"]

    def edit_fits(self, call_id: str, name: str, args: Mapping[str, Any]) -> str:
        """Holds edited arguments against the tool's schema; an empty text lets them pass. Pure, as LangGraph needs it."""
        edited = check(self.catalog, call_id, name, args)
        return edited.reason if isinstance(edited, UnfitCall) else ""

    async def complaint_about_edit(
        self, call_id: str, name: str, args: Mapping[str, Any], admitted: Admitted, thread_id: str
    ) -> str:
        """Judges edited arguments as the call that they have become; an empty text lets them pass."""
        edited = check(self.catalog, call_id, name, args)
        if isinstance(edited, UnfitCall):
            return edited.reason
        ruling = await self.judge(edited, admitted, thread_id)
        return f"The edited call is refused: {ruling.reason}" if ruling.verdict == "deny" else ""

    def tasks(
        self,
        calls: Sequence[Call | UnfitCall],
        admitted: Admitted,
        decisions: Mapping[str, AnyDecision],
        changes: Mapping[str, str] = NO_CHANGES,
    ) -> list[Send]:
        """One task per call in the order of the reply, so that the answers keep that order.

        Args:
            calls: The reply's calls.
            admitted: The terms of the task.
            decisions: What a person decided, by call id.
            changes: Digests of the file changes that the person saw, by call id.
        """
        return [self._task(call, admitted, decisions, changes) for call in calls]

    def _task(
        self,
        call: Call | UnfitCall,
        admitted: Admitted,
        decisions: Mapping[str, AnyDecision],
        changes: Mapping[str, str],
    ) -> Send:
        if isinstance(call, UnfitCall):
            return preset(call.call_id, call.name, call.reason, admitted, is_error=True)
        decision = decisions.get(call.call_id)
        match decision:
            case Reject():
                return preset(call.call_id, call.tool.name, _rejected(decision), admitted, is_error=True)
            case Respond():
                return preset(call.call_id, call.tool.name, decision.message, admitted, is_error=False)
            case Edit():
                edited = check(self.catalog, call.call_id, call.tool.name, decision.edited_action.args)
                if isinstance(edited, UnfitCall):
                    return preset(call.call_id, call.tool.name, edited.reason, admitted, is_error=True)
                return _send(edited, admitted, approved=True, edited=True)
            case _:
                seen = changes.get(call.call_id, "") if decision is not None else ""
                return _send(call, admitted, approved=decision is not None, edited=False, change=seen)

    def checked(self, task: ToolTask) -> Call:
        """The call of a task that was admitted before."""
        call = check(self.catalog, task["call_id"], task["name"], task["args"])
        assert isinstance(call, Call)
        return call

    async def admits(self, task: ToolTask) -> Call | str:
        """The last look before execution: the call when it may run, else the refusal.

        What a person approved must be what runs, digest for digest, and a call that needs a person and had none is refused
        whichever way it came here. Deny rules hold against approvals too.
        """
        call = check(self.catalog, task["call_id"], task["name"], task["args"])
        if isinstance(call, UnfitCall):
            return call.reason
        if call.digest != task["digest"]:
            return "This call is not the one that was checked before. It did not run."
        ruling = await self.judge(call, task["admitted"], current_thread())
        if ruling.verdict == "deny":
            return f"Refused by policy: {ruling.reason} It did not run."
        if ruling.verdict == "ask" and not task["approved"]:
            return f"This call needs a person's approval and has none: {ruling.reason} It did not run."
        return call


def _send(call: Call, admitted: Admitted, *, approved: bool, edited: bool, change: str = "") -> Send:
    task = ToolTask(
        call_id=call.call_id,
        name=call.tool.name,
        args=call.arguments.model_dump(mode="json"),
        digest=call.digest,
        approved=approved,
        edited=edited,
        change=change,
        admitted=admitted,
    )
    return Send(NATIVE, {"task": task}) if call.tool.run is None else Send(TOOL, task)


def preset(call_id: str, name: str, content: str, admitted: Admitted, *, is_error: bool) -> Send:
    """A task whose answer is known already: nothing runs, the answer takes its place among the others."""
    return Send(
        TOOL,
        ToolTask(
            call_id=call_id,
            name=name,
            args={},
            digest="",
            approved=False,
            edited=False,
            change="",
            admitted=admitted,
            preset=PresetAnswer(content=content, is_error=is_error),
        ),
    )


def _rejected(decision: Reject) -> str:
    reason = f" They said: {decision.message}" if decision.message else ""
    return f"A person rejected this call, so it did not run.{reason}"


def answer_of(task: ToolTask, result: ToolResult) -> ToolMessage:
    """The answer to a task's call. An edited call's says what ran, so that the model does not ask for the original again."""
    note = ""
    if task["edited"]:
        args = str(dict(task["args"]))[:MAX_SHOWN_ARGUMENTS]
        note = f"A person changed this call before it ran. The arguments that ran: {args}\n\n"
    return answer(task["call_id"], task["name"], replace(result, content=note + result.content))


def current_thread() -> str:
    """The thread of the step that calls this."""
    return str(get_config().get("configurable", {}).get("thread_id", ""))
