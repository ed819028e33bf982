"""A runtime with a server in the middle of a call, for a test that kills it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mcp.serving import offered, stdio


async def _hold(folder: Path) -> None:
    async with offered(folder, {"real": stdio(folder)}) as bench:
        await bench.call("mcp__real__block")


asyncio.run(_hold(Path(sys.argv[1])))
