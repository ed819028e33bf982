"""Fixtures of the tests with misbehaving commands."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import corpus
from tests.processes.corpus import Person


@pytest.fixture(scope="module")
def people() -> dict[str, Person | str]:
    """Everyone as whom a runtime is tried here."""
    return corpus.people()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every one of them may use."""
    made = Path(tempfile.mkdtemp(prefix="teardown-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def tight(folder: Path) -> Path | None:
    """The case that is compiled, where there is a compiler."""
    return corpus.build_tight(folder) if corpus.compiler() else None
