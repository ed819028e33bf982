"""CPU of a model call and of a token, against stock ChatOpenAI in the same run: `python -m tests.bench.models`.

The scripted server runs in its own process, so that the figures are the client's alone. Each row is the best of several
interleaved rounds; CPU time, not wall time, since other work on the machine moves wall time more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from nodes.models.chat_models import ChatModels
from nodes.models.record import to_toml
from nodes.models.reply import reply
from nodes.models.script import Script, ScriptedCall, ScriptedReply, When
from nodes.models.spec import ModelChain, ModelSpec

SIZES = (2, 40, 200, 600)
ROUNDS = 5
CALLS = 8
TOKENS = 2_000
PAUSE = 0.001

Once = Callable[[], Awaitable[Any]]


def history(size: int) -> list[BaseMessage]:
    """A conversation of `size` messages: a task, then tool calls with 1 KB of result each."""
    messages: list[BaseMessage] = [HumanMessage("Fix the build.")]
    for turn in range(size // 2):
        call = {"name": "execute", "args": {"command": f"make step-{turn}"}, "id": f"call-{turn}"}
        messages += [AIMessage("", tool_calls=[call]), ToolMessage("x" * 1_000, tool_call_id=f"call-{turn}")]
    return [*messages[: size - 1], HumanMessage("Go on.")]


def script() -> Script:
    words = " ".join("word" for _ in range(TOKENS))
    return Script.of(
        ScriptedReply(when=When(user_contains="burst"), text=words, times=0),
        ScriptedReply(when=When(user_contains="paced"), text=words[: TOKENS * 5 // 4], pause=PAUSE, times=0),
        ScriptedReply(calls=(ScriptedCall(name="execute", arguments={"command": "ls -la"}),), times=0),
    )


@contextlib.asynccontextmanager
async def scripted_server() -> AsyncIterator[str]:
    """The base URL of a scripted model in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.toml"
        path.write_text(to_toml(script()), encoding="utf-8")
        arguments = (sys.executable, "-m", "nodes.models.scripted", str(path))
        process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None
            yield (await process.stdout.readline()).decode().split()[-1]
        finally:
            process.kill()
            await process.wait()


async def cpu(once: Once, count: int) -> float:
    """Milliseconds of this process's CPU for one call."""
    started = time.process_time()
    for _ in range(count):
        await once()
    return (time.process_time() - started) * 1_000 / count


async def compare(named: dict[str, Once], count: int) -> dict[str, float]:
    """The best round of each, the rounds interleaved."""
    for once in named.values():
        await once()
    best = dict.fromkeys(named, float("inf"))
    for _ in range(ROUNDS):
        for name, once in named.items():
            best[name] = min(best[name], await cpu(once, count))
    return best


def silent(_: str, /, **__: Any) -> None:
    """An event sink that keeps nothing."""


class Bench:
    """The three ways to ask, over one server."""

    def __init__(self, url: str, models: ChatModels) -> None:
        self.spec = ModelSpec(model="m", base_url=url)
        self.models = models
        self.stock = ChatOpenAI(model="m", base_url=url, api_key="x", streaming=True, stream_usage=True, max_retries=0)

    def ours(self, messages: list[BaseMessage]) -> Once:
        chain = ModelChain.of(self.spec)
        return lambda: reply(messages, (), chain, ask=self.models.ask, emit=silent)

    async def calls(self) -> None:
        for size in SIZES:
            messages = history(size)
            named: dict[str, Once] = {
                "reply": self.ours(messages),
                "chat model": lambda messages=messages: self.models.chat(self.spec).ainvoke(messages),
                "stock ChatOpenAI": lambda messages=messages: self.stock.ainvoke(messages),
            }
            show("call", size, await compare(named, CALLS), unit="ms")

    async def tokens(self) -> None:
        for kind, count in (("burst", TOKENS), ("paced", TOKENS // 4)):
            messages: list[BaseMessage] = [HumanMessage(kind)]
            named: dict[str, Once] = {
                "reply": self.ours(messages),
                "stock ChatOpenAI": lambda messages=messages: self.stock.ainvoke(messages),
            }
            best = await compare(named, 1)
            show(f"token, {kind}", count, {name: value * 1_000 / count for name, value in best.items()}, unit="us")


def show(what: str, size: int, best: dict[str, float], *, unit: str) -> None:
    figures = {name: round(value, 3) for name, value in best.items()}
    ratio = round(best["stock ChatOpenAI"] / best["reply"], 1)
    print(json.dumps({"cpu": what, "size": size, "unit": unit, **figures, "stock / reply": ratio}), flush=True)


async def main() -> None:
    """Prints one JSON object a row."""
    async with scripted_server() as url, ChatModels({}) as models:
        bench = Bench(url, models)
        await bench.calls()
        await bench.tokens()


if __name__ == "__main__":
    asyncio.run(main())
