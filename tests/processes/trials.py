"""The long experiments that tests and the benchmark share: the whole corpus in one runtime, and deaths around a spawn."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from tests.processes import corpus
from tests.processes.corpus import NAMES, PROGRAMS, Person, beats, marked

LATE = 750_000_000
"""Nanoseconds after the end within which a heartbeat may still come on a busy machine; the benchmark prints the real ones."""

HOLDER = PROGRAMS / "holder.py"
ROOT = Person(name="root", python=sys.executable)

_groups = count(700_000 + os.getpid() % 100_000 * 100)


def fresh_group() -> int:
    """A supplementary group that nobody else uses, to mark a runtime and all that comes of it."""
    return next(_groups)


class Trial:
    """One runtime with the whole corpus in it, from its start to a look at what is left."""

    def __init__(self, person: Person, way: str, containment: str, folder: Path, tight: Path | None) -> None:
        self.way = way
        self.group = fresh_group()
        self.names = [name for name in NAMES if tight or name != "tight"]
        place = Path(tempfile.mkdtemp(prefix=f"{person.name}-{way}-", dir=folder))
        place.chmod(0o777)
        self.files = {name: place / name for name in self.names}
        order = {
            "lines": {name: corpus.line(name, self.files[name], person.python, tight or Path()) for name in self.names},
            "files": {name: str(file) for name, file in self.files.items()},
            "way": way,
            "timeout": 6.0 if way == "timeout" else None,
            "containment": containment,
            "quiet": ["delayed", "bg_exit", "hold_out"],
        }
        self.runtime = person.popen(PROGRAMS / "runtime.py", json.dumps(order), group=self.group)
        self.verdicts: dict[str, Any] = {}
        self.died = 0

    def play(self) -> list[str]:
        """Everything that is wrong afterwards; an empty list is what is wanted."""
        assert self.runtime.stdout
        with self.runtime:
            up = self.runtime.stdout.readline().strip()
            if self.way == "hold":
                self.runtime.send_signal(signal.SIGKILL)
                self.died = time.monotonic_ns()
            else:
                self.verdicts = json.loads(self.runtime.stdout.read() or "{}")
        time.sleep(2.2)  # what went on would have beaten fifty times, and the late effects would be there
        return ([] if up == "up" else ["the corpus did not come up"]) + self._wrong()

    def _wrong(self) -> list[str]:
        wrong = [f"survivor {found}" for found in marked(self.group)]
        for name in self.names:
            wrong += self._wrong_with(name)
        return wrong

    def _wrong_with(self, name: str) -> Iterator[str]:
        ended = self.died
        if self.way != "hold":
            verdict = self.verdicts.get(name)
            if verdict is None:
                yield f"{name}: no verdict"
                return
            ended = verdict["ended"]
            expected = "exit" if name in corpus.ENDS_BY_ITSELF else self.way
            if verdict["reason"] != expected and not (name == "killsup" and verdict["reason"] == "lost"):
                yield f"{name}: reason {verdict['reason']}"
            if verdict["empty"] != (verdict["reason"] != "lost"):
                yield f"{name}: empty {verdict['empty']} with reason {verdict['reason']}"
        last = max((instant for _, instant in beats(self.files[name])), default=0)
        if last > ended + LATE:
            yield f"{name}: a heartbeat {(last - ended) / 1e6:.0f} ms after the end"
        if self.files[name].with_name(name + ".late").exists():
            yield f"{name}: a late effect"


def gone_soon(group: int, seconds: float = 3.0) -> list[str]:
    """What of a marked runtime still lives after so many seconds; returns as soon as nothing does."""
    end = time.monotonic() + seconds
    while (left := marked(group)) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def _race(delay: float, after_begin: bool, words: tuple[str, ...], folder: Path) -> tuple[list[str], bool]:  # noqa: FBT001 (map)
    """Kills a runtime `delay` seconds after it asks for a scope, or after its command began.

    Answers who survived, and whether the command had begun.
    """
    group = fresh_group()
    began = folder / str(group)
    line = f"touch {began}; (setsid sleep 30 &); sleep 30 & sleep 30"
    with ROOT.popen(HOLDER, line, "0", *words, group=group) as runtime:
        assert runtime.stdout
        assert runtime.stdout.readline() == "ready\n"
        end = time.monotonic() + 10
        while after_begin and not began.exists() and time.monotonic() < end:
            time.sleep(0.0005)
        time.sleep(delay)
        runtime.kill()
    return gone_soon(group), began.exists()


def races(number: int, folder: Path) -> tuple[list[list[str]], int]:
    """Kills so many runtimes around a spawn. Answers what survived, and how often the command had begun."""
    # Half of the kills fall while the scope is being made, half after its command began; every fourth has no spawner yet.
    chosen = random.Random(number)
    running = [index % 2 == 0 for index in range(number)]
    delays = [chosen.uniform(0, 0.02 if late else 0.012) for late in running]
    words = [("cold",) if index % 4 == 0 else () for index in range(number)]
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(_race, delays, running, words, [folder] * number))
    return [survivors for survivors, _ in results if survivors], sum(begun for _, begun in results)
