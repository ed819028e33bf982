"""One cell of a persistent Python: what the kernel says while it runs, and what it gave in the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from nodes.processes.output import BoundedText, Output, snapshot
from nodes.processes.scrubbing import Scrubber

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class CellStatus(StrEnum):
    """How a cell ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    DIED = "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellError:
    """The exception that ended a cell: its class name, its message, and the traceback without colours."""

    name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What a cell gave.

    Attributes:
        status: How it ended.
        output: What it printed and showed as text, in order, bounded.
        error: The exception, if it ended with one.
        fresh: True when the kernel was started for this cell, so that no earlier variables exist.
        state_lost: True when the kernel is gone with everything it knew.
        killed: Processes that had to be killed because the cell was ended.
        empty: False when it could not be shown that nothing which the cell started lives.
        milliseconds: From the timeout or the cancel to the proof; 0 for a cell that ended by itself.
    """

    status: CellStatus
    output: Output
    error: CellError | None = None
    fresh: bool = False
    state_lost: bool = False
    killed: int = 0
    empty: bool = True
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What ending a cell took."""

    killed: int
    empty: bool
    state_lost: bool
    milliseconds: float


@dataclass(slots=True)
class Cell:
    """What has been heard of the running cell."""

    text: BoundedText
    scrubber: Scrubber
    on_text: Callable[[str], None] | None
    fresh: bool
    error: CellError | None = None

    def say(self, text: str) -> None:
        """Takes a piece of text."""
        self._keep(self.scrubber.feed(text.encode(errors="replace")))

    def _keep(self, data: bytes) -> None:
        self.text.feed(data)
        if self.on_text is not None and data:
            self.on_text(data.decode(errors="replace"))

    def result(self, status: CellStatus, broken: Broken | None = None) -> CellResult:
        """What is known now, as the cell's end."""
        self._keep(self.scrubber.rest())
        known = CellResult(status=status, output=snapshot(self.text, None, 0), error=self.error, fresh=self.fresh)
        return replace(known, **asdict(broken)) if broken else known


def take(message: dict[str, Any], cell: Cell) -> bool:
    """Puts one message into the cell's record. True when it was the last."""
    content = message["content"]
    kind = message["msg_type"]
    if kind == "stream":
        cell.say(content["text"])
    elif kind in ("execute_result", "display_data"):
        cell.say(_as_text(content["data"]))
    elif kind == "error":
        trace = _COLOUR.sub("", "\n".join(content["traceback"]))
        cell.error = CellError(name=content["ename"], message=content["evalue"], traceback=trace)
    return bool(kind == "status" and content["execution_state"] == "idle")


def _as_text(data: Mapping[str, Any]) -> str:
    text = data.get("text/plain", "")
    other = sorted(kind for kind in data if kind != "text/plain")
    return f"{text} [{', '.join(other)}]\n" if other else f"{text}\n"
