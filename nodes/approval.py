"""The question that a person answers before calls run, and the answer, checked as a whole before any of it is stored.

The value has the ecosystem's human-in-the-loop shape (`action_requests`, `review_configs`, answered by
`{"decisions": [...]}` in the same order), so that LangGraph Studio, Agent Inbox and chat front ends show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, Self

from langgraph.types import interrupt
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from nodes.calls import Call

DecisionKind = Literal["approve", "edit", "reject", "respond"]
ALL_KINDS: tuple[DecisionKind, ...] = ("approve", "edit", "reject", "respond")


class _Decision(BaseModel):
    """What every decision may carry: the call it means and what was shown of it; a mismatch is refused.

    Attributes:
        tool_call_id: The call.
        digest: Digest of tool and validated arguments, as shown.
        change: Digest of the file change that was shown, for a call that makes one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool_call_id: str | None = None
    digest: str | None = None
    change: str | None = None


class Approve(_Decision):
    """Run the call as it was shown. With `remember`, let the same call run unasked in this thread or everywhere."""

    type: Literal["approve"]
    remember: Literal["session", "always"] | None = None


class EditedAction(BaseModel):
    """The call that runs instead: the same tool, other arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    args: dict[str, Any]


class Edit(_Decision):
    """Run the same tool with other arguments."""

    type: Literal["edit"]
    edited_action: EditedAction


class Reject(_Decision):
    """Do not run it; the model reads why."""

    type: Literal["reject"]
    message: str | None = None


class Respond(_Decision):
    """Do not run it; the model takes the message as the call's result."""

    type: Literal["respond"]
    message: str


AnyDecision = Approve | Edit | Reject | Respond
Decision = Annotated[AnyDecision, Field(discriminator="type")]


class Answer(BaseModel):
    """One decision per question, in their order. Made for the turn at hand by `answer_to`.

    Decisions may come keyed by tool call id, or as a list; see `in_order`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    decisions: list[Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call that waits for a person.

    Attributes:
        call: The call.
        description: What a person reads: exactly what will run, escaped.
        reason: Why it is asked.
        change: Digest of the file change that the description shows; empty when it shows none.
        allowed: The decisions that are open for it.
    """

    call: Call
    description: str
    reason: str
    change: str = ""
    allowed: tuple[DecisionKind, ...] = ALL_KINDS


class EditCheck(Protocol):
    """Judges edited arguments as the call that they have become."""

    def __call__(self, call_id: str, name: str, args: Mapping[str, Any]) -> str:
        """Gives the complaint, or an empty text when the edited call may run."""


def value_of(questions: Sequence[Question]) -> dict[str, Any]:
    """The interrupt's value. `bindings` says which call each request means and the digest that an approval is bound to."""
    return {
        "action_requests": [
            {
                "name": question.call.tool.name,
                "args": question.call.arguments.model_dump(mode="json", exclude_unset=True),
                "description": question.description,
            }
            for question in questions
        ],
        "review_configs": [
            {"action_name": question.call.tool.name, "allowed_decisions": list(question.allowed)} for question in questions
        ],
        "bindings": [
            {
                "tool_call_id": question.call.call_id,
                "digest": question.call.digest,
                "change": question.change,
                "reason": question.reason,
            }
            for question in questions
        ],
    }


def in_order(decisions: Any, value: Mapping[str, Any]) -> Any:
    """Puts decisions in the order of the questions: a mapping from tool call ids, or a list in which each names its call.

    A list of decisions that do not all name their calls stands in the order of the questions already. What does not fit is
    handed on as it came, for the schema to refuse.

    Args:
        decisions: What came in.
        value: The interrupt's value.
    """
    if isinstance(decisions, Mapping):
        named = decisions.items()
        decisions = [{"tool_call_id": key, **given} if isinstance(given, Mapping) else given for key, given in named]
    if not isinstance(decisions, list | tuple):
        return decisions
    by_call = {str(given.get("tool_call_id")): given for given in decisions if isinstance(given, Mapping)}
    expected = [binding["tool_call_id"] for binding in value["bindings"]]
    fits = len(decisions) == len(expected) and by_call.keys() == set(expected)
    return [by_call[call_id] for call_id in expected] if fits else list(decisions)


_About = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
"""What is asked of one call: its request, its review and its binding."""


def answer_to(value: Mapping[str, Any], check_edit: EditCheck, others: Mapping[str, Any] | None = None) -> type[Answer]:
    """The response schema of one interrupt's value.

    LangGraph validates an answer with it before it stores the answer, so a wrong one leaves the approval pending. Doors
    validate with the same schema before they ask for a run.

    Args:
        value: The interrupt's value.
        check_edit: Judges edits.
        others: Calls that nobody is asked about by now, in the form of a value. Inside the graph, which asks anew what the
            policy says when it resumes: an answer whose decisions all name their call and its digest was given to what was
            shown then, and holds although a rule has been saved since.
    """
    asked = _each(value)
    known = {binding["tool_call_id"]: about for about in (*_each(others), *asked) if (binding := about[2])} if others else {}

    class AnswerToThese(Answer):
        @field_validator("decisions", mode="before")
        @classmethod
        def _in_order(cls, decisions: Any) -> Any:
            return in_order(decisions, value)

        @model_validator(mode="after")
        def _fits(self) -> Self:
            meant = _meant(self.decisions, known) or asked
            if len(self.decisions) != len(meant):
                got = [decision.tool_call_id or decision.type for decision in self.decisions]
                expected = [binding["tool_call_id"] for _, _, binding in asked]
                raise ValueError(f"{len(asked)} decisions are needed, for {expected}, and {len(self.decisions)} came: {got}.")
            pairs = zip(self.decisions, meant, strict=True)
            complaints = [complaint for decision, about in pairs if (complaint := _complaint(decision, *about, check_edit))]
            if complaints:
                raise ValueError(" ".join(complaints))
            return self

    AnswerToThese.__name__ = "Answer"
    return AnswerToThese


def _each(value: Mapping[str, Any]) -> list[_About]:
    return list(zip(value["action_requests"], value["review_configs"], value["bindings"], strict=True))


def _meant(decisions: Sequence[AnyDecision], known: Mapping[str, _About]) -> list[_About]:
    """What decisions speak of that name their calls and digests; empty when they do not, or name one twice."""
    ids = [decision.tool_call_id or "" for decision in decisions if decision.digest is not None]
    whole = len(set(ids)) == len(decisions) and known.keys() >= set(ids)
    return [known[call_id] for call_id in ids] if whole else []


def _complaint(
    decision: AnyDecision,
    request: Mapping[str, Any],
    review: Mapping[str, Any],
    binding: Mapping[str, Any],
    check_edit: EditCheck,
) -> str:
    call_id, name, allowed = binding["tool_call_id"], request["name"], review["allowed_decisions"]
    if decision.tool_call_id not in (None, call_id):
        return f"The decision for {decision.tool_call_id} stands in the place of {call_id}."
    if decision.digest not in (None, binding["digest"]):
        return f"{call_id} is not the call that was shown any more: look at it again."
    if isinstance(decision, Approve) and decision.change not in (None, binding["change"]):
        return f"The file that {call_id} changes is not as it was shown any more: look at the change again."
    if decision.type not in allowed:
        return f"{call_id} takes one of {allowed}, not {decision.type}."
    if not isinstance(decision, Edit):
        return ""
    if decision.edited_action.name != name:
        return f"{call_id} calls {name}: an edit changes its arguments, never the tool."
    return check_edit(call_id, name, decision.edited_action.args)


def ask_about(questions: Sequence[Question], others: Sequence[Question], check_edit: EditCheck) -> dict[str, AnyDecision]:
    """Stops the graph here until a person has answered, and gives the decisions by call.

    Args:
        questions: What is asked.
        others: The other calls of the same reply, about which decisions may have been given when they were asked about.
        check_edit: Judges edits.

    Raises:
        GraphInterrupt: As `ask` does.
    """
    value = value_of(questions)
    given = interrupt(value, response_schema=answer_to(value, check_edit, value_of(others))).decisions
    ids = [decision.tool_call_id for decision in given]
    if len(given) != len(questions) or None not in ids:
        return {call_id: decision for call_id, decision in zip(ids, given, strict=True) if call_id is not None}
    return {question.call.call_id: decision for question, decision in zip(questions, given, strict=True)}


def ask(value: Mapping[str, Any], check_edit: EditCheck) -> list[AnyDecision]:
    """Stops the graph here until a person has answered, and gives one decision per question.

    Raises:
        GraphInterrupt: On the first pass, by LangGraph's design; it must reach LangGraph, so nothing may catch it.
    """
    return interrupt(value, response_schema=answer_to(value, check_edit)).decisions
