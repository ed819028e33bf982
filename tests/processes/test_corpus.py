"""Twenty misbehaving commands, three ways to end them, three kinds of user: nothing lives on (S47)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.processes import corpus
from tests.processes.corpus import NAMES, PROGRAMS, Person, beats, marked

LATE = 750_000_000
"""Nanoseconds after the end within which a heartbeat may still come on a busy machine; the benchmark prints the real ones."""

WAYS = ("cancel", "timeout", "hold")
GROUP = 700_000 + os.getpid() % 100_000 * 10


@pytest.fixture(scope="module")
def people() -> dict[str, Person | str]:
    return corpus.people()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="corpus-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def tight(folder: Path) -> Path | None:
    return corpus.build_tight(folder) if corpus.compiler() else None


class Trial:
    """One runtime with the whole corpus in it, from its start to a look at what is left."""

    def __init__(self, person: Person, way: str, containment: str, folder: Path, tight: Path | None, group: int) -> None:
        self.way = way
        self.group = group
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
        self.runtime = person.popen(PROGRAMS / "runtime.py", json.dumps(order), group=group)
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


def _play(
    person: Person | str, ways: tuple[str, ...], containment: str, folder: Path, tight: Path | None
) -> dict[str, list[str]]:
    if isinstance(person, str):
        pytest.skip(person)
    trials = {way: Trial(person, way, containment, folder, tight, GROUP + number) for number, way in enumerate(ways)}
    with ThreadPoolExecutor(len(trials)) as threads:
        return dict(zip(trials, threads.map(Trial.play, trials.values()), strict=True))


@pytest.mark.timeout(100)
@pytest.mark.parametrize("name", ["root", "ordinary", "forbidden"])
def test_nothing_of_the_corpus_lives_after_cancel_timeout_or_the_runtimes_death(
    name: str, people: dict[str, Person | str], folder: Path, tight: Path | None
) -> None:
    assert _play(people[name], WAYS, "auto", folder, tight) == {way: [] for way in WAYS}


@pytest.mark.timeout(100)
@pytest.mark.parametrize("containment", ["reap", "namespace"])
def test_every_rung_holds_the_corpus(
    containment: str, people: dict[str, Person | str], folder: Path, tight: Path | None
) -> None:
    ways = ("cancel", "hold")
    assert _play(people["root"], ways, containment, folder, tight) == {way: [] for way in ways}


@pytest.mark.timeout(100)
def test_the_strict_rung_holds_the_corpus_of_an_ordinary_user(
    people: dict[str, Person | str], folder: Path, tight: Path | None
) -> None:
    ways = ("cancel", "hold")
    assert _play(people["ordinary"], ways, "namespace", folder, tight) == {way: [] for way in ways}
