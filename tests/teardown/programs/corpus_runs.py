"""A runtime that runs the corpus, one real run a command, ends the runs as it is told, and prints what came of them as JSON.

Its one argument is JSON: `root` (a folder), `lines` (name to shell line), `files` (name to heartbeat file), `quiet` (names that
never beat), `way` (cancel, timeout or hold), `timeout` in seconds, and `user` and `python` to become somebody else.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from graphs.run import Run
from graphs.service import Service
from nodes.models.script import ScriptedReply, When
from tests.runs.scene import GUARD, calls, opened, says, scene
from tests.teardown.programs.standing import person_of


def _replies(order: dict[str, Any]) -> list[ScriptedReply]:
    """For each command a reply that asks for it, and one end for all."""
    commands = {
        name: calls(("execute", {"command": line, "timeout": order["timeout"]})) for name, line in order["lines"].items()
    }
    asks = [
        reply.model_copy(update={"times": 0, "when": When(user_contains=f"<{name}>", tool_results=0)})
        for name, reply in commands.items()
    ]
    return [*asks, says("Done.").model_copy(update={"times": 0, "when": When(tool_results=1)})]


async def _all_up(order: dict[str, Any]) -> None:
    waiting = [Path(file) for name, file in order["files"].items() if name not in order["quiet"]]
    async with asyncio.timeout(GUARD * 2):
        while waiting:
            waiting = [file for file in waiting if not file.exists()]
            await asyncio.sleep(0.02)


async def _ended(service: Service, run: Run, way: str) -> dict[str, Any]:
    asked = time.monotonic_ns()
    outcome = await (run.cancel("enough") if way == "cancel" else run.wait_stopped(GUARD * 2))
    ended = time.monotonic_ns()
    events = [event async for event in service.follow(run.run_id)]
    completed = [event.payload["details"] for event in events if event.kind == "tool.complete"]
    endings = [event.payload for event in events if event.kind == "run_terminal"]
    return {
        "asked": asked,
        "ended": ended,
        "outcome": outcome,
        "completed": completed,
        "endings": len(endings),
        "cleanup_errors": endings[0].get("cleanup_errors", []),
        "running": service.waiting_for(run.run_id),
    }


async def _main(order: dict[str, Any]) -> None:
    async with scene(Path(order["root"]), _replies(order)) as place, opened(place) as service:
        context = place.context.model_copy(update={"yolo": True})
        runs = {name: await service.submit(f"Do <{name}>.", context=context) for name in order["lines"]}
        await _all_up(order)
        await asyncio.sleep(0.4)
        print("up", flush=True)
        if order["way"] == "hold":
            await asyncio.sleep(GUARD * 4)
        found = await asyncio.gather(*(_ended(service, run, order["way"]) for run in runs.values()))
    print(json.dumps(dict(zip(runs, found, strict=True))), flush=True)


if __name__ == "__main__":
    _order = json.loads(sys.argv[1])
    person_of(_order)
    asyncio.run(_main(_order))
