"""Twenty misbehaving commands, three ways to end them, three kinds of user: nothing lives on (S47)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes import corpus
from tests.processes.corpus import Person
from tests.processes.trials import Trial

WAYS = ("cancel", "timeout", "hold")


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


def _play(
    person: Person | str, ways: tuple[str, ...], containment: str, folder: Path, tight: Path | None
) -> dict[str, list[str]]:
    if isinstance(person, str):
        pytest.skip(person)
    trials = {way: Trial(person, way, containment, folder, tight) for way in ways}
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
