"""What scopes cost and how they end, in one run: `python -m tests.bench.processes [--quick] [--corpus] [--races N]`.

Every figure is measured beside its comparison, in turns, so that other work on the machine falls on both; first scopes alone,
then real runs of the graph. `--corpus` adds the misbehaving commands in every way to end them for every kind of user, both as
scopes and as runs; `--races N` kills N runtimes around a spawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from nodes.processes.forkserver import tree
from nodes.processes.kernel import Kernel, KernelSpec
from nodes.processes.processes import Processes
from nodes.processes.spec import Confinement, Preference
from tests.bench.process_runs import misbehaving as misbehaving_runs
from tests.bench.process_runs import through_runs
from tests.processes import corpus, trials
from tests.processes.corpus import PROGRAMS, beats
from tests.processes.living import PATH, command, shell
from tests.processes.trials import HOLDER, ROOT, fresh_group

TREE = "(setsid sleep 60 & setsid sleep 61 &) ; echo up; sleep 62"
MISBEHAVE = f"{sys.executable} -S -E -I {PROGRAMS / 'misbehave.py'}"


def row(what: str, value: str, target: str = "") -> None:
    """One line of the table."""
    print(f"{what:<58} {value:>24}   {target}", flush=True)


def spread(seconds: list[float]) -> str:
    """Median and 95th percentile in milliseconds."""
    ordered = sorted(seconds)
    return f"{statistics.median(ordered) * 1e3:.2f} / {ordered[int(len(ordered) * 0.95)] * 1e3:.2f} ms"


async def spawn_overhead(opened: Processes, rounds: int) -> None:
    """A command from request to verdict, against a bare shell from start to wait."""
    rungs: tuple[Preference, ...] = ("auto", "reap", "namespace")
    confined = Confinement(writable=("/tmp",), hidden=(f"{Path.home()}/.ssh",))
    specs = {rung: shell(":", containment=rung) for rung in rungs} | {"auto, confined": shell(":", confinement=confined)}
    bare: list[float] = []
    ours: dict[str, list[float]] = {name: [] for name in specs}
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(["/bin/sh", "-c", ":"], check=True)
        bare.append(time.perf_counter() - began)
        for name, spec in specs.items():
            began = time.perf_counter()
            await opened.run(spec)
            ours[name].append(time.perf_counter() - began)
    row("bare shell, start to wait (median / p95)", spread(bare))
    for name, taken in ours.items():
        extra = statistics.median(taken) - statistics.median(bare)
        row(f"scope ({name}), start to verdict", spread(taken))
        row(f"scope ({name}), median over bare shell", f"{extra * 1e3:.2f} ms", "<= 5 ms")


async def cancel(opened: Processes, rounds: int) -> None:
    """From the cancel of a run to its return, which is after the proof; and the last beat of a heart that was beating."""
    taken = []
    for _ in range(rounds):
        task = asyncio.create_task(opened.run(shell(TREE)))
        while not opened.active:
            await asyncio.sleep(0)
        async for _ in opened.active[0].lines():
            break
        began = time.perf_counter()
        task.cancel()
        await asyncio.wait([task])
        taken.append(time.perf_counter() - began)
    row("cancel to return with proof, 4 processes (median / p95)", spread(taken), "p95 <= 50 ms")


async def last_beat(opened: Processes, rounds: int, folder: Path) -> None:
    """How long after a cancel the last heartbeat of three writers came."""
    late = []
    for number in range(rounds):
        file = folder / f"beat{number}"
        line = f"setsid {MISBEHAVE} beat {file} & {MISBEHAVE} twice_forked {file}; {MISBEHAVE} beat {file}"
        scope = await opened.start(shell(line))
        while len({pid for pid, _ in beats(file)}) < 3:
            await asyncio.sleep(0.01)
        asked = time.monotonic_ns()
        await scope.stop()
        late.append(max(0, max(instant for _, instant in beats(file)) - asked) / 1e9)
    row(
        "last heartbeat after the cancel (median / max)",
        f"{statistics.median(late) * 1e3:.2f} / {max(late) * 1e3:.2f} ms",
        "<= 15 ms",
    )


async def flood(opened: Processes, size: int) -> None:
    """Growth of a runtime's memory at its peak under a flood of output."""
    scope, _ = await opened.run(command(sys.executable, str(PROGRAMS / "flood.py"), str(size), timeout=100))
    written, grown = map(int, scope.output.text.split())
    row(f"memory under {written / 1e6:.0f} MB of output", f"+{grown / 1e6:.2f} MB", "<= 8 MB")


def _held() -> tuple[int, int, int]:
    me = os.getpid()
    zombies = sum(1 for pid in tree.children_from_files(me) if (stat := tree.stat_of(pid)) and not stat.alive)
    return sum(1 for _ in Path("/proc/self/fd").iterdir()), zombies, threading.active_count()


async def leaks(opened: Processes, number: int) -> None:
    """Descriptors, zombies and threads before and after many commands."""
    before = _held()
    began = time.perf_counter()
    for _ in range(number):
        await opened.run(
            shell("sleep 60 & echo x"),
        )
    each = (time.perf_counter() - began) / number
    after = _held()
    row(
        f"leak after {number} commands (descriptors/zombies/threads)",
        "/".join(str(b - a) for a, b in zip(before, after, strict=True)),
        "0/0/0",
    )
    row("a command with a leftover, linger included", f"{each * 1e3:.1f} ms")


def stopped_runtime(rounds: int, folder: Path) -> None:
    """How late a deadline of 0.5 s is when the runtime is stopped."""
    late = []
    for number in range(rounds):
        file = folder / f"stopped{number}"
        with ROOT.popen(HOLDER, f"exec {MISBEHAVE} beat {file}", "0.5", group=fresh_group()) as runtime:
            assert runtime.stdout
            runtime.stdout.readline()
            began = json.loads(runtime.stdout.readline())["began"]
            runtime.send_signal(signal.SIGSTOP)
            time.sleep(1)
            late.append((max(instant for _, instant in beats(file)) - began) / 1e9 - 0.5)
            runtime.send_signal(signal.SIGCONT)
            runtime.stdout.read()
    row("last heartbeat after the deadline, runtime stopped (max)", f"{max(late) * 1e3:.0f} ms", "<= 150 ms")


async def cells(opened: Processes, rounds: int, folder: Path) -> None:
    """Cancel of a cell that started six processes: until its return, and whether anything lived or was forgotten."""
    kernel = Kernel(opened, KernelSpec(cwd=str(folder), env={"PATH": PATH}))
    began = time.perf_counter()
    await kernel.execute("kept = 1; import subprocess, time")
    row("kernel, first cell", f"{(time.perf_counter() - began) * 1e3:.0f} ms")
    taken, lost, dirty = [], 0, 0
    code = """
p = [subprocess.Popen(["setsid", "sleep", "60"]) for _ in range(5)]
print("up", flush=True)
subprocess.run("sleep 61; true", shell=True)
"""
    for _ in range(rounds):
        up = asyncio.Event()
        task = asyncio.create_task(kernel.execute(code, on_text=lambda _text, up=up: up.set()))
        await up.wait()
        began = time.perf_counter()
        task.cancel()
        await asyncio.wait([task])
        taken.append(time.perf_counter() - began)
        assert kernel.last_interruption is not None
        lost += kernel.last_interruption.state_lost
        dirty += not kernel.last_interruption.empty
    kept = (await kernel.execute("kept")).output.text.strip() == "1"
    await kernel.stop()
    row("cell cancel to return, 7 processes (median / p95)", spread(taken), "<= 100 ms")
    row("cells with survivors / state lost / variables kept", f"{dirty} / {lost} / {kept}", "0 / 0 / True")


def misbehaving(folder: Path) -> None:
    """Bad cases of the corpus, for every kind of user and every way to end it."""
    tight = corpus.build_tight(folder) if corpus.compiler() else None
    for name, person in corpus.people().items():
        for way in ("cancel", "timeout", "hold"):
            if isinstance(person, str):
                row(f"corpus: {name}, {way}", "not here", person)
                continue
            trial = trials.Trial(person, way, "auto", folder, tight)
            wrong = trial.play()
            row(
                f"corpus: {name}, {'runtime killed' if way == 'hold' else way}",
                f"{len(wrong)} of {len(trial.names)} bad",
                "0 of 20",
            )


def deaths(number: int, folder: Path) -> None:
    """Runtimes killed at random moments around a spawn."""
    survivors, begun = trials.races(number, folder)
    row(f"{number} runtimes killed within 60 ms of a spawn, {begun} begun", f"{len(survivors)} with survivors", "0")


async def main() -> None:
    """Prints the table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--corpus", action="store_true")
    asked.add_argument("--races", type=int, default=0)
    options = asked.parse_args()
    rounds = 20 if options.quick else 100
    folder = Path(tempfile.mkdtemp(prefix="bench-processes-"))
    folder.chmod(0o777)
    try:
        async with Processes() as opened:
            await opened.run(shell(":"))
            await spawn_overhead(opened, rounds)
            await cancel(opened, rounds)
            await last_beat(opened, rounds // 4, folder)
            await flood(opened, 400_000_000)
            await leaks(opened, rounds * 3)
            await cells(opened, rounds // 4, folder)
        await through_runs(folder, row, spread, rounds)
        stopped_runtime(rounds // 10, folder)
        if options.corpus:
            misbehaving(folder)
            misbehaving_runs(folder, row)
        if options.races:
            deaths(options.races, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    asyncio.run(main())
