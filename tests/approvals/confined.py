"""How the tests of confinement run one approved command, and what they read of it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from graphs.service import Service
from nodes.processes.forkserver import system
from tests.approvals.asking import answers, descriptions, events_of, park
from tests.runs.scene import GUARD, Scene

NEEDS_LANDLOCK = pytest.mark.skipif(system.landlock_abi() < 4, reason="this kernel's Landlock is missing or too old for TCP")

SECRET = "KEY-MATERIAL"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command gave, what its approval had said, and the details of its result."""

    text: str
    shown: str
    confinement: dict[str, object]


def configured(place: Scene, text: str) -> None:
    """What the user's own file says."""
    assert place.settings.config is not None
    place.settings.config.write_text(text)


async def run_approved(service: Service, place: Scene) -> Outcome:
    """Parks, approves, and waits for the end."""
    run = await park(service, place)
    [shown] = await descriptions(service, run.thread_id)
    later = await service.decide(run.thread_id, [{"type": "approve"}])
    assert await later.wait_stopped(2 * GUARD) == "completed"
    [done] = await events_of(later, "tool.complete")
    [answer] = await answers(service, run.thread_id)
    return Outcome(text=str(answer.content), shown=shown, confinement=dict(done["details"]["confinement"]))
