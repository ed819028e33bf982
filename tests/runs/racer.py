"""A process of its own that decides when it is told to: reads JSON lines, answers JSON lines."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from checkpoints.errors import CheckreinError
from graphs.client import open_checkrein
from graphs.service import Service
from nodes.context import AgentContext


async def act(service: Service, order: dict[str, Any]) -> dict[str, Any]:
    """Does one thing to a thread and says how it went."""
    try:
        if "task" in order:
            run = await service.submit(order["task"], thread_id=order["thread"], context=AgentContext(**order["context"]))
        else:
            run = await service.decide(order["thread"], order["decisions"])
        return {"won": True, "outcome": await run.wait_stopped(60)}
    except CheckreinError as error:
        return {"won": False, "code": error.code, "message": str(error)}


async def main() -> None:
    """Obeys until its input ends."""
    async with open_checkrein() as service:
        print(json.dumps({"ready": True}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await act(service, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
