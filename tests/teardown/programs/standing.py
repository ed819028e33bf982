"""What every runtime program here begins with: whose it is, and where things are."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.runs.scene import GUARD, calls, opened, says, scene


def become(user: int, python: str, home: Path) -> None:
    """Goes on as an ordinary user, who may not read the packages that are in use here: they are all loaded first.

    Args:
        user: The user and group id.
        python: An interpreter that this user may execute, for the spawner.
        home: A folder that this user may write.
    """
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_warm_up(Path(folder)))
    os.setgid(user)
    os.setuid(user)
    os.environ["HOME"] = str(home)
    os.chdir("/")
    sys.executable = python


async def _warm_up(folder: Path) -> None:
    replies = [calls(("execute", {"command": "sleep 60 & echo x"})), says("Done."), calls(("execute", {"command": "sleep 60"}))]
    async with scene(folder, replies) as place, opened(place) as service:
        context = place.context.model_copy(update={"yolo": True})
        assert await (await service.submit("Go.", context=context)).wait_stopped(GUARD) == "completed"
        run = await service.submit("Go.", context=context)
        while not service.waiting_for(run.run_id):
            await asyncio.sleep(0.01)
        assert await run.cancel("enough") == "cancelled"


def person_of(order: dict[str, Any]) -> None:
    """Becomes whom the order names, if it names anybody."""
    if order.get("user") is not None:
        become(order["user"], order["python"], Path(order["root"]))
