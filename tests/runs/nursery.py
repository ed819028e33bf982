"""Starts runtimes quickly so that they can be killed: everything is imported once, and each runtime is a fork of that.

Reads one JSON order a line, answers with the pid of the fork, and reaps it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from graphs.client import open_checkrein
from nodes.context import AgentContext


async def scenario(order: dict[str, Any]) -> None:
    """A task from its message to its end, approving whatever it asks."""
    async with open_checkrein() as service:
        run = await service.submit(order["task"], thread_id=order["thread"], context=AgentContext(**order["context"]))
        while await run.wait_stopped(60) == "awaiting_input":
            view = await service.show(order["thread"])
            asked = view.pending[0].value["action_requests"]
            run = await service.decide(order["thread"], [{"type": "approve"}] * len(asked))


def main() -> None:
    """Forks one runtime per order until the input ends."""
    print(json.dumps({"ready": True}), flush=True)
    while line := sys.stdin.readline():
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            asyncio.run(scenario(order))
            os._exit(0)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
