"""Pages of a file by line numbers, with memory and result bounded whatever the file is."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from nodes.workspace.bounds import LINE_BYTES, RESULT_BYTES, size

SCAN_BYTES = 256 * 1024 * 1024
"""How far into a file a page may lie: a few tenths of a second of reading."""

_PROBE_BYTES = 8192
"""Where a NUL marks a file as binary: git's own rule looks at the first 8,000 bytes."""

_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Consecutive lines of a file.

    Attributes:
        text: The lines, each with its number; bad bytes shown as U+FFFD.
        first: Number of the first line shown, from 1.
        count: Lines shown.
        ended: Whether the file ends with them.
        binary: True when the file is no text; then there are no lines.
        carriage_returns: Whether a line shown ended with CR LF (the CR itself is left out).
    """

    text: str
    first: int
    count: int
    ended: bool
    binary: bool = False
    carriage_returns: bool = False


def read_page(file: BinaryIO, first: int, count: int) -> Page:
    """Reads up to `count` lines from line `first`; stops early where the result is full.

    Lines end with LF alone. A line longer than LINE_BYTES is cut, with a marker.
    """
    if is_binary(file.read(_PROBE_BYTES)):
        return Page(text="", first=first, count=0, ended=True, binary=True)
    file.seek(0)
    shown: list[str] = []
    used, crlf, ended = 0, False, True
    for number, line in enumerate(_lines(file), start=1):
        if number < first:
            continue
        text = f"{number:>6}\t{line.text()}"
        if len(shown) == count or used + size(text) + 1 > RESULT_BYTES:
            ended = False
            break
        crlf = crlf or line.start.endswith(b"\r")
        shown.append(text)
        used += size(text) + 1
    return Page(text="\n".join(shown), first=first, count=len(shown), ended=ended, carriage_returns=crlf)


def is_binary(start: bytes) -> bool:
    """Whether a file that starts like this is no text."""
    return b"\0" in start


@dataclass(slots=True)
class _Line:
    """The start of a line, enough to show it, and how long it is without its LF."""

    start: bytes = b""
    length: int = 0

    def add(self, piece: bytes) -> None:
        self.start += piece[: 2 * LINE_BYTES - len(self.start)]
        self.length += len(piece)

    def text(self) -> str:
        if self.length <= LINE_BYTES:
            return self.start.removesuffix(b"\r").decode("utf-8", "replace")
        # The incremental decoder keeps back a character that the cut would split.
        kept = codecs.getincrementaldecoder("utf-8")("replace").decode(self.start[:LINE_BYTES])
        return f"{kept}[... line of {self.length} bytes, cut here ...]"


def _lines(file: BinaryIO) -> Iterator[_Line]:
    """Every line of the file, within SCAN_BYTES; memory stays flat whatever their length."""
    line = _Line()
    read = 0
    while read < SCAN_BYTES and (chunk := file.read(_CHUNK)):
        read += len(chunk)
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line.add(piece)
            yield line
            line = _Line()
        line.add(rest)
    if line.length:
        yield line
