"""A runtime with one scope. Says `ready` before the start, the scope's identity after it, and then holds on.

Arguments: the shell line, the scope's timeout in seconds (0 for none), and words: `cold` (the spawner is not up yet at
`ready`), `fork` (a child keeps copies of every descriptor).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from nodes.processes.processes import Processes
from nodes.processes.spec import ScopeSpec


async def _main(line: str, timeout: float, words: list[str]) -> None:
    async with Processes() as opened:
        if "cold" not in words:
            await opened.containment()
        print("ready", flush=True)
        spec = ScopeSpec(
            argv=("/bin/sh", "-c", line), cwd="/", env={"PATH": os.environ["PATH"]}, timeout=timeout or None, containment="auto"
        )
        began = time.monotonic_ns()
        scope = await opened.start(spec)
        if "fork" in words and os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        print(json.dumps(scope.identity.record() | {"began": began}), flush=True)
        print(json.dumps((await scope.wait()).record() | {"output": scope.output.text}), flush=True)


asyncio.run(_main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
