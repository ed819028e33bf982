"""A runtime whose run takes a flood of output; prints the outcome, bytes written, and how much its memory grew at the peak.

Arguments: a folder, and the size of the flood in bytes.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.runs.scene import GUARD, calls, opened, says, scene


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


async def _main(root: Path, size: int) -> None:
    warm = "yes warm | head -c 4000000"
    flood = f"yes {'a' * 62} | head -c {size}"
    replies = [calls(("execute", {"command": warm})), says("Done."), calls(("execute", {"command": flood})), says("Done.")]
    async with scene(root, replies) as place, opened(place) as service:
        context = place.context.model_copy(update={"yolo": True})
        await (await service.submit("Go.", context=context)).wait_stopped(GUARD)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _memory("VmRSS")
        run = await service.submit("Go.", context=context)
        outcome = await run.wait_stopped(GUARD * 3)
        grown = _memory("VmHWM") - before
        events = [event async for event in service.follow(run.run_id)]
    [details] = [event.payload["details"] for event in events if event.kind == "tool.complete"]
    live = sum(len(event.payload["text"]) for event in events if event.kind == "output")
    print(json.dumps({"outcome": outcome, "written": details["output_bytes"], "grown": grown, "live": live}))


asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2])))
