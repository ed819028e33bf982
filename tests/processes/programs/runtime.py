"""A runtime that starts the corpus all at once, ends it as it is told, and prints what came of it as JSON.

Its one argument is JSON: `lines` (name to shell line), `files` (name to heartbeat file), `way` (cancel, timeout or hold),
`timeout` in seconds, `containment`, `quiet` (names that never beat).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodes.processes.processes import Processes
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Verdict


async def _one(opened: Processes, order: dict[str, Any], name: str, results: dict[str, Any]) -> None:
    spec = ScopeSpec(
        argv=("/bin/bash", "-c", order["lines"][name]),
        cwd="/tmp",
        env={"PATH": os.environ["PATH"]},
        timeout=order["timeout"],
        containment=order["containment"],
    )
    scope = await opened.start(spec)
    verdict: Verdict | None = None
    asked = time.monotonic_ns()
    try:
        verdict = await scope.wait()
    except asyncio.CancelledError:
        asked = time.monotonic_ns()
        verdict = await scope.stop()
        raise
    finally:
        if verdict is not None:
            results[name] = verdict.record() | {"asked": asked, "ended": time.monotonic_ns()}


async def _all_up(order: dict[str, Any]) -> None:
    waiting = [Path(file) for name, file in order["files"].items() if name not in order["quiet"]]
    async with asyncio.timeout(30):
        while waiting:
            waiting = [file for file in waiting if not file.exists()]
            await asyncio.sleep(0.02)


async def _main(order: dict[str, Any]) -> None:
    results: dict[str, Any] = {}
    async with Processes() as opened:
        tasks = [asyncio.create_task(_one(opened, order, name, results)) for name in order["lines"]]
        await _all_up(order)
        await asyncio.sleep(0.4)
        print("up", flush=True)
        if order["way"] == "hold":
            await asyncio.sleep(60)
        if order["way"] == "cancel":
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
    print(json.dumps(results), flush=True)


asyncio.run(_main(json.loads(sys.argv[1])))
