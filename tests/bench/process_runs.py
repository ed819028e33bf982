"""The figures of `tests.bench.processes` that are taken through real runs of the real graph."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from graphs.run import Run
from graphs.service import Service
from tests.processes import corpus
from tests.processes.corpus import PROGRAMS as MISBEHAVING
from tests.processes.corpus import beats
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene
from tests.teardown.looking import bypassing, scope_of
from tests.teardown.trials import PROGRAMS, WAYS, RunTrial

Row = Callable[..., None]
Spread = Callable[[list[float]], str]

MISBEHAVE = f"{sys.executable} -S -E -I {MISBEHAVING / 'misbehave.py'}"
TURNS = 30


async def _completed(service: Service, place: Scene, task: str) -> float:
    began = time.perf_counter()
    run = await service.submit(task, context=bypassing(place))
    assert await run.wait_stopped(GUARD * 2) == "completed"
    return time.perf_counter() - began


async def command_cost(folder: Path, row: Row, rounds: int) -> None:
    """A turn with a command against a turn with a tool that does nothing, in turns, over one store on disk."""
    once = {"times": TURNS}
    command = calls(("execute", {"command": ":"})).model_copy(update=once)
    nothing = calls(("process_list", {})).model_copy(update=once)
    replies = [reply for _ in range(rounds) for reply in (command, says("Done."), nothing, says("Done."))]
    taken: tuple[list[float], list[float]] = ([], [])
    async with scene(folder, replies) as place, opened(place) as service:
        for _ in range(rounds):
            for kind in taken:
                kind.append(await _completed(service, place, "Go.") / TURNS)
    commands, nothings = (statistics.median(kind) * 1e3 for kind in taken)
    row("a turn of a run with a command / with a tool that does nothing", f"{commands:.1f} / {nothings:.1f} ms")


async def cancels(folder: Path, row: Row, spread: Spread, rounds: int) -> None:
    """From `Run.cancel` to its return, which comes after the proof and the run's ending on disk; and the last heartbeat."""
    line = f"setsid {MISBEHAVE} beat {{0}} & {MISBEHAVE} twice_forked {{0}}; {MISBEHAVE} beat {{0}}"
    files = [folder / f"beat{number}" for number in range(rounds)]
    replies = [calls(("execute", {"command": line.format(file)})) for file in files]
    taken, killed, late = [], [], []
    async with scene(folder, replies) as place, opened(place) as service:
        for file in files:
            run: Run = await service.submit("Go.", context=bypassing(place))
            scope = await scope_of(service)
            while len({pid for pid, _ in beats(file)}) < 3:
                await asyncio.sleep(0.01)
            asked = time.monotonic_ns()
            ending = asyncio.create_task(run.cancel("enough"))
            await scope.wait()
            killed.append((time.monotonic_ns() - asked) / 1e9)
            await ending
            taken.append((time.monotonic_ns() - asked) / 1e9)
            late.append(max(0, max(instant for _, instant in beats(file)) - asked) / 1e9)
    row("Run.cancel to the scope's proof, 4 processes (median / p95)", spread(killed), "p95 <= 50 ms")
    row("Run.cancel to its return, ending recorded (median / p95)", spread(taken), "p95 <= 50 ms")
    row("last heartbeat after Run.cancel (median / max)", _worst(late), "<= 15 ms")


def _worst(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.2f} / {max(seconds) * 1e3:.2f} ms"


def flood(folder: Path, row: Row) -> None:
    """Growth of a runtime's memory at its peak while a run's command writes 400 MB."""
    program = [sys.executable, str(PROGRAMS / "flooded.py"), str(folder), "400000000"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PRETEND_API_KEY": "not-to-be-found-in-a-flood"}
    found = json.loads(subprocess.run(program, stdout=subprocess.PIPE, check=True, env=environment).stdout)
    row(f"memory of a run under {found['written'] / 1e6:.0f} MB of output", f"+{found['grown'] / 1e6:.2f} MB", "<= 8 MB")
    row("of which the ledger got as live lines", f"{found['live'] / 1e3:.0f} kB", "<= 262 kB")


def misbehaving(folder: Path, row: Row) -> None:
    """Bad cases of the corpus in real runs, for every kind of user and every way to end it."""
    tight = corpus.build_tight(folder) if corpus.compiler() else None
    for name, person in corpus.people().items():
        for way in WAYS:
            if isinstance(person, str):
                row(f"corpus in real runs: {name}, {way}", "not here", person)
                continue
            trial = RunTrial(name, person, way, folder, tight)
            bad = {wrong.partition(":")[0] for wrong in trial.play()}
            what = "runtime killed" if way == "hold" else way
            row(f"corpus in real runs: {name}, {what}", f"{len(bad)} of {len(trial.names)} bad", "0 of 20")
            row("    last heartbeat after the end of all of them", f"{trial.latest * 1e3:.0f} ms", "<= 250 ms")


async def through_runs(folder: Path, row: Row, spread: Spread, rounds: int) -> None:
    """Prints the figures; `rounds` is that of the table."""
    await command_cost(Path(tempfile.mkdtemp(dir=folder)), row, max(3, rounds // 20))
    await cancels(Path(tempfile.mkdtemp(dir=folder)), row, spread, rounds // 2)
    await asyncio.to_thread(flood, Path(tempfile.mkdtemp(dir=folder)), row)
