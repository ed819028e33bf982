"""A runtime that takes a flood of output, and prints how much came and how many bytes its memory grew at the peak."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodes.processes.processes import Processes
from tests.processes.living import shell


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


async def _main(size: int) -> None:
    async with Processes() as opened:
        await opened.run(shell("seq 50000"))
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _memory("VmRSS")
        scope, _ = await opened.run(shell(f"yes {'a' * 62} | head -c {size}"))
        print(scope.output.total_bytes, _memory("VmHWM") - before)


asyncio.run(_main(int(sys.argv[1])))
