"""What runs cost on the real graph, over real HTTP to a model in a process of its own: `python -m tests.bench.runs`.

Prints bytes and time a turn at 100, 300 and 1000 turns with 1 KB results, and commits, errors and throughput of 200 runs at
once on one SQLite file, from one process and from four.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from graphs.client import open_checkrein
from graphs.settings import Settings
from nodes.context import AgentContext

MODEL = """
import asyncio, sys
from nodes.models.script import Script, ScriptedCall, ScriptedReply, When
from nodes.models.scripted import ScriptedModel

async def main():
    turns, many = int(sys.argv[1]), sys.argv[2] == "many"
    ask = ScriptedReply(calls=(ScriptedCall(name="read_file", arguments={"path": "text"}),), times=0 if many else turns)
    asks = [ask.model_copy(update={"when": When(tool_results=number)}) for number in range(turns)] if many else [ask]
    async with ScriptedModel(Script(replies=(*asks, ScriptedReply(text="Done.", times=0)))) as model:
        print(model.base_url, flush=True)
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        while not (await asyncio.wait([ended], timeout=0.2))[0]:
            model.requests.clear()  # a thousand requests of a megabyte each are nobody's need here

asyncio.run(main())
"""


@asynccontextmanager
async def model_in_a_process(turns: int, runs: str = "one") -> AsyncIterator[str]:
    """A scripted model that asks for a file so often and then ends the task, for `one` run or for `many`; gives its address."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", MODEL, str(turns), runs, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


def settings_in(folder: Path, base_url: str) -> Settings:
    """A state folder of its own."""
    home = folder / "state"
    return Settings(
        home=home,
        store=str(home / "checkrein.db"),
        model="bench",
        base_url=base_url,
        key_name="",
        config=folder / "checkrein.toml",
    )


def context_in(folder: Path) -> AgentContext:
    """A workspace with one file of about 1 KB."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    (workspace / "text").write_text("".join(f"line {number} of a text that is read again and again\n" for number in range(20)))
    return AgentContext(workspace=str(workspace), max_turns=10_000, max_tool_calls=10_000)


async def long_run(turns: int) -> dict[str, Any]:
    """One run of so many turns: bytes a turn beyond the empty store, and CPU milliseconds a turn in the first and last tenth.

    CPU of the runtime's process alone: the model's process parses a request that grows with the conversation.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with model_in_a_process(turns) as base_url:
            settings = settings_in(folder, base_url)
            async with open_checkrein(settings=settings):
                pass
            empty = Path(settings.store).stat().st_size
            async with open_checkrein(settings=settings) as service:
                run = await service.submit("Read.", context=context_in(folder))
                at = [time.process_time() async for event in run.stream() if event.kind == "tool.complete"]
                assert await run.wait_stopped() == "completed"
        size = Path(settings.store).stat().st_size
    spent = [later - earlier for earlier, later in itertools.pairwise(at)]
    tenth = max(1, turns // 10)
    return {
        "turns": turns,
        "bytes": size,
        "bytes a turn": round((size - empty) / turns),
        "CPU ms a turn, first tenth": round(statistics.mean(spent[1:tenth]) * 1000, 1),
        "CPU ms a turn, last tenth": round(statistics.mean(spent[-tenth:]) * 1000, 1),
    }


async def crowd(settings: Settings, context: AgentContext, runs: int) -> dict[str, Any]:
    """So many runs at once in this process: outcomes, commits a turn, turns a second."""
    async with open_checkrein(settings=settings) as service:
        before, began = service.store.stats.commits, time.perf_counter()
        started = await asyncio.gather(*(service.submit("Read.", context=context) for _ in range(runs)))
        outcomes = await asyncio.gather(*(run.wait_stopped() for run in started))
        seconds, commits = time.perf_counter() - began, service.store.stats.commits - before
    turns = runs * (TURNS_IN_A_CROWD + 1)
    return {
        "runs": runs,
        "outcomes": sorted(set(outcomes)),
        "commits a turn": round(commits / turns, 3),
        "turns a second": round(turns / seconds, 1),
    }


TURNS_IN_A_CROWD = 4


async def crowds(processes: int, runs: int) -> list[dict[str, Any]]:
    """The same from several processes on one file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with model_in_a_process(TURNS_IN_A_CROWD, "many") as base_url:
            context_in(folder)
            command = [sys.executable, "-m", "tests.bench.runs", "--crowd", str(folder), base_url, str(runs)]
            started = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(processes)]
            said = await asyncio.gather(*(process.communicate() for process in started))
    return [json.loads(out) for out, _ in said]


async def main(arguments: Sequence[str]) -> None:
    """Everything, or one process's part of a crowd."""
    if arguments[:1] == ["--crowd"]:
        folder, base_url, runs = Path(arguments[1]), arguments[2], int(arguments[3])
        print(json.dumps(await crowd(settings_in(folder, base_url), context_in(folder), runs)))
        return
    for turns in (100, 300, 1000):
        print(await long_run(turns), flush=True)
    print(await crowds(1, 200), flush=True)
    print(await crowds(4, 50), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
