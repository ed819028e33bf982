"""The shape every tool has, so that the approval, the journal and the policy need to know none of them by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict


class Arguments(BaseModel):
    """Base of every tool's argument model: unknown names are refused, values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Effect(StrEnum):
    """What a call may change, which decides whether it is gated and how the journal treats it after a crash."""

    NONE = "none"
    """A pure read. Never journalled; just runs again."""

    FILE = "file"
    """A write that can tell by digest whether it already happened: after a crash it settles itself, no person needed."""

    OUTSIDE = "outside"
    """Anything else, a shell command above all. Started without a recorded result means unknown: a person decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call gave.

    Attributes:
        content: The text the model sees. Already bounded by the tool.
        is_error: True when the call failed or was refused; the run goes on either way.
        details: JSON facts for events and people (exit code, killed, diff, path of the full output); not sent to the model.
    """

    content: str
    is_error: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


class Emit(Protocol):
    """Where a tool says what it is doing while it runs."""

    def __call__(self, kind: str, /, **payload: Any) -> None:
        """Publishes one event of the run. Never blocks and never fails; payload values are JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """Where and for whom one call runs.

    Attributes:
        call_id: The tool call's id, unique in its thread.
        thread_id: The thread that the call belongs to.
        run_id: The run that executes it; empty when the graph is driven without a run (Studio).
        owner: Who the processes that the call starts belong to: the run, or the thread when there is none.
        session: Key of the sandbox session that the call works in; empty when it works in none.
        workspace: Absolute path of the folder that tools act in.
        deadline: Monotonic second at which the run ends, or None.
        emit: The run's event sink.
    """

    call_id: str
    thread_id: str
    run_id: str
    owner: str
    session: str
    workspace: str
    deadline: float | None
    emit: Emit


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One thing the model may ask for.

    Attributes:
        name: What the model calls it.
        description: What the model reads about it.
        arguments: The pydantic model of its arguments, defaults included; its JSON schema goes to the model.
        effect: What a call may change.
        run: Does the work. A refusal is a ToolResult with is_error, not an exception. Cancellation stops everything the call
            started and waits for it before CancelledError goes through. None marks a native command, which the native
            subgraph runs.
        confined: Whether the call's work is a process that the confinement of commands holds, so that an approval shows it.
    """

    name: str
    description: str
    arguments: type[Arguments]
    effect: Effect
    run: Callable[[Any, CallSite], Awaitable[ToolResult]] | None
    confined: bool = False
