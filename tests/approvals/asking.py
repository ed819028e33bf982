"""How the tests of approvals put a run to a person, and what they read of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langchain_core.messages import ToolMessage

from checkpoints.records import Approval
from graphs.answers import Decisions
from graphs.run import Run
from graphs.service import Service
from nodes.context import AgentContext
from tests.runs.scene import GUARD, Scene


async def park(service: Service, place: Scene, context: AgentContext | None = None, thread_id: str = "") -> Run:
    """A run that waits for a person."""
    run = await service.submit("Go.", thread_id=thread_id, context=context or place.context)
    assert await run.wait_stopped(GUARD) == "awaiting_input"
    return run


async def decided(service: Service, thread_id: str, decisions: Decisions) -> str:
    """The outcome of the run that a decision starts."""
    run = await service.decide(thread_id, decisions)
    return await run.wait_stopped(GUARD)


async def waiting(service: Service, thread_id: str) -> Approval:
    """The one approval of a thread that waits."""
    [approval] = (await service.show(thread_id)).pending
    return approval


async def descriptions(service: Service, thread_id: str) -> list[str]:
    """What a person reads, one text for each call."""
    approval = await waiting(service, thread_id)
    return [request["description"] for request in approval.value["action_requests"]]


async def answers(service: Service, thread_id: str) -> list[ToolMessage]:
    """The answers to the calls of a thread, each call answered once."""
    found = [message for message in (await service.show(thread_id)).messages if isinstance(message, ToolMessage)]
    assert len({message.tool_call_id for message in found}) == len(found)
    return found


async def ran(service: Service, place: Scene, context: AgentContext | None = None) -> Run:
    """A run that comes to its end by itself."""
    run = await service.submit("Go.", context=context or place.context)
    assert await run.wait_stopped(GUARD) == "completed"
    return run


async def events_of(run: Run, kind: str) -> list[Mapping[str, Any]]:
    """The payloads of a run's events of one kind."""
    return [event.payload async for event in run.stream() if event.kind == kind]


def lines_of(path: Path) -> list[str]:
    """The lines of a file that commands append to; none while it is not there."""
    return path.read_text().splitlines() if path.exists() else []


def appending(word: str) -> tuple[str, dict[str, Any]]:
    """A call that appends a word to `executions`."""
    return ("execute", {"command": f"echo {word} >> executions"})


class SetClock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2027, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return time.monotonic()

    def pass_by(self, seconds: float) -> None:
        """Lets time pass; a negative number sets the clock back."""
        self.at += timedelta(seconds=seconds)
