"""What tests look at after a run: its events, its journal, and which processes still carry a word of its command line."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from pathlib import Path
from typing import Any

from checkpoints.journal import Journal
from checkpoints.records import EffectRow, Event
from graphs.run import Run
from graphs.service import Service
from nodes.context import AgentContext
from nodes.native import Native
from nodes.processes.scope import Scope
from tests.runs.scene import GUARD, Scene

_numbers = itertools.count(1)


def bypassing(place: Scene) -> AgentContext:
    """A context that asks for nothing."""
    return place.context.model_copy(update={"yolo": True})


def unique_seconds() -> str:
    """An argument for `sleep` that no other process has: some ten minutes."""
    return f"6{os.getpid():08d}.{next(_numbers)}"


def running(word: str) -> list[str]:
    """Live processes with this word on their command line."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                line = Path(entry.path, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in line:
                found.append(entry.name)
    return found


async def events_of(service: Service, run: Run) -> list[Event]:
    """A run's events, to its end."""
    return [event async for event in service.follow(run.run_id)]


async def effects_of(service: Service, run: Run) -> tuple[EffectRow, ...]:
    """The journal of a run's thread."""
    return await Journal(service.store).effects(run.thread_id)


async def ended_once(service: Service, run: Run) -> dict[str, Any]:
    """Holds a run against what every ending must be, and gives the terminal event's payload.

    One ending, for each start of a tool one end, and a result in the journal for everything that began.
    """
    events = await events_of(service, run)
    kinds = Counter(event.kind for event in events)
    assert kinds["run_terminal"] == 1
    assert events[-1].kind == "run_terminal"
    assert kinds["tool.start"] == kinds["tool.complete"], kinds
    assert [effect.call_id for effect in await effects_of(service, run) if effect.status != "done"] == []
    assert service.waiting_for(run.run_id) == []
    return dict(events[-1].payload)


def native_of(service: Service) -> Native:
    """The native commands of a runtime."""
    return service._belongings._native


async def scope_of(service: Service) -> Scope:
    """The scope of the one foreground command of a runtime, once it runs."""
    async with asyncio.timeout(GUARD):
        while not native_of(service)._held:
            await asyncio.sleep(0.005)
    [held] = native_of(service)._held.values()
    return held.scope
