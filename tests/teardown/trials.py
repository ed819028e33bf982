"""The corpus in one real runtime: from its start to a look at what is left. Shared by the tests and the benchmark."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.processes import corpus
from tests.processes.corpus import NAMES, ORDINARY, Person, beats, marked
from tests.processes.trials import fresh_group

PROGRAMS = Path(__file__).parent / "programs"

LATE = 250_000_000
"""The promise: nanoseconds after the runtime's death, or after the deadline, within which the last heartbeat comes."""

MARGIN = 500_000_000
"""On top of `LATE` for a machine that is busy with other tests. A run that ended needs none: its ending is the proof."""

WAYS = ("timeout", "cancel", "hold")
"""How the runs end: the commands' own timeout, `Run.cancel`, or a SIGKILL of the runtime."""

TIMEOUT = 12.0
"""Seconds of the commands' own timeout, in which all of them have begun also on a busy machine."""

LATEST_EFFECT = 2.2
"""Seconds after the end until every late effect of the corpus would be there."""


class RunTrial:
    """One runtime with a run for each command.

    Args:
        name: Who it runs as: root, ordinary or forbidden.
        person: The same, ready to start programs.
        way: cancel, timeout, or hold, after which the runtime is killed.
        folder: Where everything of the trial goes.
        tight: The compiled case, None without a compiler.
        names: The cases.
        timeout: The commands' own, in seconds, when the way is timeout.
    """

    def __init__(
        self,
        name: str,
        person: Person,
        way: str,
        folder: Path,
        tight: Path | None,
        names: Sequence[str] = NAMES,
        timeout: float = TIMEOUT,
    ) -> None:
        self.way = way
        self.names = [name for name in names if tight or name != "tight"]
        self.group = fresh_group()
        place = Path(tempfile.mkdtemp(prefix=f"{name}-{way}-", dir=folder))
        place.chmod(0o777)
        self.files = {name: place / name for name in self.names}
        own = {"user": ORDINARY, "python": person.python} if person.user is not None else {}
        order = {
            "root": str(place),
            "lines": {name: corpus.line(name, self.files[name], person.python, tight or Path()) for name in self.names},
            "files": {name: str(file) for name, file in self.files.items()},
            "quiet": ["delayed", "bg_exit", "hold_out"],
            "way": way,
            "timeout": timeout if way == "timeout" else 60.0,
            **own,
        }
        starter = people_program(person)
        self.runtime = starter.popen(PROGRAMS / "corpus_runs.py", json.dumps(order), group=self.group)
        self.found: dict[str, Any] = {}
        self.died = 0

    def play(self) -> list[str]:
        """Everything that is wrong afterwards; an empty list is what is wanted."""
        assert self.runtime.stdout
        with self.runtime:
            up = self.runtime.stdout.readline().strip()
            if self.way == "hold" or up != "up":
                self.runtime.send_signal(signal.SIGKILL)
                self.died = time.monotonic_ns()
            else:
                self.found = json.loads(self.runtime.stdout.read() or "{}")
        time.sleep(LATEST_EFFECT)
        if up != "up":
            return ["the corpus did not come up"]
        return [f"survivor {found}" for found in marked(self.group)] + [
            wrong for name in self.names for wrong in self._wrong_with(name)
        ]

    @property
    def latest(self) -> float:
        """Seconds from the runtime's death, or from the proof of a command's own run, to the last heartbeat; 0 for none."""
        ends = {name: self.found[name]["ended"] if self.found else self.died for name in self.names}
        return max(0.0, *((instant - ends[name]) / 1e9 for name in self.names for _, instant in beats(self.files[name])[-1:]))

    def _wrong_with(self, name: str) -> Iterator[str]:
        last = max((instant for _, instant in beats(self.files[name])), default=0)
        if self.files[name].with_name(f"{name}.late").exists():
            yield f"{name}: a late effect"
        if self.way == "hold":
            if last > self.died + LATE + MARGIN:
                yield f"{name}: a heartbeat {(last - self.died) / 1e6:.0f} ms after the runtime's death"
            return
        found = self.found.get(name)
        if found is None:
            yield f"{name}: no ending"
            return
        if last > found["ended"]:
            yield f"{name}: a heartbeat {(last - found['ended']) / 1e6:.0f} ms after the proof"
        yield from self._wrong_ending(name, found)

    def _wrong_ending(self, name: str, found: dict[str, Any]) -> Iterator[str]:
        by_itself = self.way == "timeout" or name in corpus.ENDS_BY_ITSELF
        if found["outcome"] != ("completed" if by_itself else "cancelled"):
            yield f"{name}: outcome {found['outcome']}"
        if found["endings"] != 1 or found["running"] or len(found["completed"]) != 1:
            yield f"{name}: {found}"
            return
        [details] = found["completed"]
        if details["reason"] == "lost" and name == "killsup":  # without a signal scope it kills its guard: seen, and said
            if not found["cleanup_errors"] and self.way == "cancel":
                yield f"{name}: containment lost and not said"
            return
        expected = "exit" if name in corpus.ENDS_BY_ITSELF else self.way
        if details["reason"] != expected or not details["empty"] or found["cleanup_errors"]:
            yield f"{name}: {details} {found['cleanup_errors']}"


def people_program(person: Person) -> Person:
    """Who starts the program: an ordinary user's runtime is started by the one who may read the packages, and becomes it."""
    if person.user is None:
        return person
    root = corpus.people()["root"]
    assert isinstance(root, Person)
    return root
