"""The face for a person: tokens as they come, a spinner with the seconds, the last lines of a running command.

Everything finished is printed for good and scrolls away; what is still going on stands below it and is drawn again ten times a
second by a task of the loop (rich's own refresh thread is off).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from checkpoints.clock import Clock
from checkpoints.records import Event
from graphs.cli.face import Row
from graphs.cli.progress import Progress, Tone, conclusion
from nodes.display import escape_line

STYLES: dict[Tone, str] = {
    "said": "",
    "tool": "cyan",
    "output": "dim",
    "good": "green",
    "bad": "yellow",
    "quiet": "dim",
}
REDRAW = 0.1
"""Seconds between two drawings of what is going on."""


class Terminal:
    """The terminal that standard output is."""

    reports = False

    def __init__(self, clock: Clock, *, color: bool) -> None:
        self._clock = clock
        self._console = Console(no_color=not color or None, highlight=False, markup=False, emoji=False)
        self._progress = Progress(clock)
        self._frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if self._console.encoding.startswith("utf") else "|/-\\"
        self._live: Live | None = None
        self._begun = clock.monotonic()

    @property
    def may_ask(self) -> bool:
        """True when the keyboard is a terminal too."""
        return sys.stdin.isatty()

    def say(self, text: str, tone: Tone = "said") -> None:
        """Prints for good. The terminal itself wraps, so that a long command can be copied whole."""
        self._console.print(Text(text, style=STYLES[tone]), soft_wrap=True)

    def rows(self, kind: str, rows: Sequence[Row]) -> None:
        """A table with a column for each key."""
        if not rows:
            self.say(f"There is nothing to show ({kind}).", "quiet")
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in rows[0]:
            table.add_column(name, overflow="fold", no_wrap=name.endswith("_id"))
        for row in rows:
            table.add_row(*(Text(escape_line(str(value))) for value in row.values()))
        self._console.print(table)

    def event(self, event: Event) -> None:
        """Prints what the event finishes."""
        lines = self._progress.feed(event)
        if event.kind == "run_terminal":
            lines += conclusion(event.payload)
        for line in lines:
            self.say(line.text, line.tone)

    def open_steps(self) -> Sequence[str]:
        """From the events so far."""
        return self._progress.open_steps()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Draws what is going on below what is printed, and takes it away at the end."""
        self._progress = Progress(self._clock)
        self._begun = self._clock.monotonic()
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            redraw = asyncio.create_task(self._redraw(live), name="redraw of the terminal")
            try:
                yield
            finally:
                redraw.cancel()
                with suppress(asyncio.CancelledError):
                    await redraw
                live.update(Group(), refresh=True)

    async def _redraw(self, live: Live) -> None:
        while True:
            live.update(self._going_on(), refresh=True)
            await asyncio.sleep(REDRAW)

    def _going_on(self) -> Group:
        elapsed = self._clock.monotonic() - self._begun
        frame = self._frames[int(elapsed / REDRAW) % len(self._frames)]
        doing = ", ".join(self._progress.open_steps()) or "working"
        width = self._console.width - 4
        said = self._progress.saying()
        parts = [Text(said[-4 * width :])] if said else []
        parts += [Text(f"  | {_fit(line, width)}", style="dim", no_wrap=True) for line in self._progress.tails()]
        parts.append(
            Text(f"{frame} {doing} · {elapsed:.0f} s · Ctrl-C cancels", style="bold", no_wrap=True, overflow="ellipsis")
        )
        return Group(*parts)


def _fit(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"
