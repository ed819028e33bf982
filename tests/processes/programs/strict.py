"""A runtime that demands the strict rung where there is none, and prints what it is told."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodes.processes.errors import ContainmentUnavailableError
from nodes.processes.processes import Processes
from tests.processes.living import shell


async def _main() -> None:
    async with Processes() as opened:
        print((await opened.containment())["missing"]["namespace"])
        try:
            await opened.run(shell("echo ran >&2", containment="namespace"))
        except ContainmentUnavailableError as error:
            print(error)


asyncio.run(_main())
