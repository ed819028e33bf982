"""Bytes at rest and time per turn, ours against plain LangGraph on the same graph and the same text.

Run as `python -m tests.bench.storage [TURNS ...]`. A turn is a model reply with one tool call and its result of 1 KB of real
text (slices of the standard library's source), in two supersteps. Plain LangGraph is `add_messages` on AsyncSqliteSaver; it
grows with the square of the turns, so it is skipped above 300 unless `--all` is given (1.7 GB at 1000).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph, add_messages
from typing_extensions import TypedDict

from checkpoints.messages import MessagesChannel
from checkpoints.saver import ThreadSaver
from checkpoints.store import open_store

RESULT_CHARS = 1000
MOST_PLAIN_TURNS = 300


class Ours(TypedDict):
    messages: Annotated[list[AnyMessage], MessagesChannel()]
    turns: int


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One run. `own_bytes` is the file without what an empty store of the kind takes."""

    turns: int
    own_bytes: int
    seconds: float
    early_ms: float
    late_ms: float

    @property
    def bytes_a_turn(self) -> float:
        return self.own_bytes / self.turns


def real_text() -> str:
    folder = Path(os.__file__).parent
    return "".join(path.read_text("utf-8", "replace") for path in sorted(folder.glob("[a-h]*.py")))


def graph_of(state: type[Any], turns: int, text: str, clock: list[float]) -> StateGraph[Any]:
    async def model(values: Any) -> dict[str, Any]:
        clock.append(time.perf_counter())
        number = values.get("turns", 0) + 1
        args = {"command": f"sed -n {number * 20},{number * 20 + 25}p lib/module_{number % 7}.py"}
        call = {"name": "execute", "args": args, "id": f"call_{number:08x}", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])], "turns": number}

    async def tool(values: Any) -> dict[str, Any]:
        number = values["turns"]
        at = number * RESULT_CHARS % (len(text) - RESULT_CHARS)
        return {"messages": [ToolMessage(text[at : at + RESULT_CHARS], tool_call_id=f"call_{number:08x}")]}

    async def route(values: Any) -> str:
        return END if values["turns"] >= turns else "model"

    graph: StateGraph[Any] = StateGraph(state)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_edge("model", "tool")
    graph.add_conditional_edges("tool", route, ["model", END])
    return graph


async def play(state: type[Any], saver: BaseCheckpointSaver[Any], turns: int, text: str) -> tuple[float, list[float]]:
    clock: list[float] = []
    app = graph_of(state, turns, text, clock).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10 * turns}
    begun = time.perf_counter()
    await app.ainvoke({"messages": [HumanMessage("Read it all.")]}, config, durability="sync")
    return time.perf_counter() - begun, clock


def measured(turns: int, path: Path, empty: int, seconds: float, clock: Sequence[float]) -> Measure:
    tenth = max(turns // 10, 5)
    return Measure(
        turns=turns,
        own_bytes=path.stat().st_size - empty,
        seconds=seconds,
        early_ms=1000 * (clock[tenth] - clock[0]) / tenth,
        late_ms=1000 * (clock[-1] - clock[-1 - tenth]) / tenth,
    )


async def ours(turns: int, text: str, folder: Path) -> Measure:
    """Our saver and channel."""
    path = folder / f"ours-{turns}.db"
    async with open_store(path):
        pass
    empty = path.stat().st_size
    async with open_store(path) as store:
        seconds, clock = await play(Ours, ThreadSaver(store), turns, text)
    return measured(turns, path, empty, seconds, clock)


async def plain(turns: int, text: str, folder: Path) -> Measure:
    """LangGraph's own."""
    path = folder / f"plain-{turns}.db"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        seconds, clock = await play(Plain, saver, turns, text)
    return measured(turns, path, 0, seconds, clock)


def line(name: str, measure: Measure) -> str:
    return (
        f"{name:6} {measure.turns:5} turns {measure.own_bytes / 1e6:9.2f} MB {measure.bytes_a_turn:9.0f} B/turn"
        f" {measure.seconds:6.1f} s {measure.early_ms:6.2f} -> {measure.late_ms:6.2f} ms/turn"
    )


async def main(turns: Sequence[int], *, everything: bool) -> None:
    text = real_text()
    with tempfile.TemporaryDirectory() as name:
        for count in turns:
            mine = await ours(count, text, Path(name))
            sys.stdout.write(line("ours", mine) + "\n")
            if everything or count <= MOST_PLAIN_TURNS:
                theirs = await plain(count, text, Path(name))
                sys.stdout.write(line("plain", theirs) + f"  {theirs.own_bytes / mine.own_bytes:.0f} times ours\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("turns", nargs="*", type=int, default=[100, 300, 1000])
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    asyncio.run(main(options.turns, everything=options.all))
