"""What a command needs of the place that it shows things on, and the two places that need no terminal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from checkpoints.clock import Clock
from checkpoints.errors import CheckreinError
from checkpoints.records import Event
from graphs.cli.exits import Exit
from graphs.cli.jsonlines import error_record, write_line
from graphs.cli.progress import Line, Progress, Tone, conclusion
from nodes.display import escape_line, shown

Row = Mapping[str, Any]
"""One thing that a command lists. Values are plain JSON."""


class Face(Protocol):
    """Where a command shows what it does. Methods write at once and may raise BrokenPipeError."""

    @property
    def may_ask(self) -> bool:
        """Whether a person sits here who can be asked."""

    @property
    def reports(self) -> bool:
        """Whether programs read this: then whole records are shown in place of a summary."""

    def say(self, text: str, tone: Tone = "said") -> None:
        """A remark of the command's own, already safe to show."""

    def rows(self, kind: str, rows: Sequence[Row]) -> None:
        """A listing."""

    def event(self, event: Event) -> None:
        """The next event of the run in view."""

    def open_steps(self) -> Sequence[str]:
        """What the run in view is at."""

    def live(self) -> AbstractAsyncContextManager[None]:
        """While a run is in view."""


class JsonLines:
    """Everything as one JSON object a line, on standard output."""

    may_ask = False
    reports = True

    def __init__(self, clock: Clock) -> None:
        self._progress = Progress(clock)

    def say(self, text: str, tone: Tone = "said") -> None:
        """A line of kind `note`."""
        del tone
        write_line({"kind": "note", "text": text})

    def rows(self, kind: str, rows: Sequence[Row]) -> None:
        """A line for each."""
        for row in rows:
            write_line({"kind": kind, **row})

    def event(self, event: Event) -> None:
        """The event as it is stored."""
        self._progress.feed(event)
        write_line(event_row(event))

    def open_steps(self) -> Sequence[str]:
        """From the events so far."""
        return self._progress.open_steps()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Changes nothing here."""
        yield


class PlainText:
    """Everything as lines of text, for commands that explain and do not report: demo, doctor, graph."""

    may_ask = False
    reports = False

    def __init__(self, clock: Clock) -> None:
        self._progress = Progress(clock)

    def say(self, text: str, tone: Tone = "said") -> None:
        """The text and a line feed."""
        del tone
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def rows(self, kind: str, rows: Sequence[Row]) -> None:
        """A line for each."""
        del kind
        for row in rows:
            self.say("  ".join(escape_line(str(value)) for value in row.values() if value != ""))

    def event(self, event: Event) -> None:
        """The lines that the event finishes."""
        lines: list[Line] = self._progress.feed(event)
        if event.kind == "run_terminal":
            lines += conclusion(event.payload)
        for line in lines:
            self.say(line.text)

    def open_steps(self) -> Sequence[str]:
        """From the events so far."""
        return self._progress.open_steps()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Changes nothing here."""
        yield


def event_row(event: Event) -> dict[str, Any]:
    """An event as JSON."""
    return {
        "kind": event.kind,
        "run_id": event.run_id,
        "seq": event.seq,
        "at": event.at.isoformat(),
        "payload": dict(event.payload),
    }


def complain(error: CheckreinError, status: Exit, *, as_json: bool) -> None:
    """Says what went wrong on standard error, and for programs as the last line of standard output."""
    hint = "".join(f"\n  {line}" for line in shown(error.hint).lines() if line)
    sys.stderr.write(f"checkrein: {shown(str(error)).text}{hint}\n")
    sys.stderr.flush()
    if as_json:
        write_line(error_record(error.record(), status))
