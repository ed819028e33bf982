"""What a command wrote, in bounded memory: head and tail are kept, the middle is counted, live lines never hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

_LF = 0x0A
_LONGEST_CHARACTER = 4
_NUL_SHOWN = "\u2400"


def whole_characters(data: bytes | bytearray) -> int:
    """How many of these bytes end with a whole UTF-8 character; bytes that can never become one count as whole."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < needed else len(data)
    return len(data)


def first_character(data: bytes | bytearray) -> int:
    """How many leading bytes belong to a character that began before."""
    skipped = 0
    while skipped < min(len(data), _LONGEST_CHARACTER - 1) and data[skipped] & 0xC0 == 0x80:
        skipped += 1
    return skipped


def shown(data: bytes | bytearray) -> str:
    """The text, with one U+FFFD for each broken piece and U+2400 for NUL, which neither JSONB nor a terminal takes."""
    return data.decode("utf-8", errors="replace").replace("\0", _NUL_SHOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What is known of the output at one moment.

    Attributes:
        head: Its beginning, or all of it.
        tail: Its end; empty when `head` is all.
        total_bytes: How much was written.
        total_lines: Line feeds in it.
        omitted_bytes: How much is in neither head nor tail.
        omitted_lines: Line feeds in that part.
        spill: The file that holds it from the beginning, or None.
        spilled_bytes: How much that file holds.
    """

    head: str
    tail: str
    total_bytes: int
    total_lines: int
    omitted_bytes: int
    omitted_lines: int
    spill: Path | None
    spilled_bytes: int

    @property
    def text(self) -> str:
        """Head and tail with a line between them that says what is missing."""
        if not self.omitted_bytes:
            return self.head + self.tail
        gap = "" if self.head.endswith("\n") or not self.head else "\n"
        return (
            f"{self.head}{gap}[... {self.omitted_bytes} bytes in {self.omitted_lines} lines left out of "
            f"{self.total_bytes} bytes ...]\n{self.tail}"
        )


class BoundedText:
    """The head and tail of a stream, fed piece by piece."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_room = head
        self._tail_room = tail
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.total_lines = 0

    @property
    def overflowed(self) -> bool:
        """Whether something has been left out."""
        return self.total_bytes > self._head_room + self._tail_room

    def kept(self) -> bytes:
        """Everything so far; only meaningful while nothing has been left out."""
        return bytes(self._head + self._tail)

    def feed(self, data: bytes) -> None:
        """Takes the next piece."""
        self.total_bytes += len(data)
        self.total_lines += data.count(b"\n")
        room = self._head_room - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_room :] if len(data) > self._tail_room else data
        if len(self._tail) > 2 * self._tail_room:
            del self._tail[: len(self._tail) - self._tail_room]

    def cut(self) -> tuple[bytes, bytes]:
        """Head and tail, cut at line feeds where that keeps half of them, and between characters anyway."""
        if not self.overflowed:
            return self.kept(), b""
        tail = bytes(self._tail[-self._tail_room :]) if self._tail_room else b""
        return _until_line_end(bytes(self._head)), _from_line_start(tail)


def _until_line_end(data: bytes) -> bytes:
    end = data.rfind(b"\n") + 1
    return data[:end] if end * 2 >= len(data) else data[: whole_characters(data)]


def _from_line_start(data: bytes) -> bytes:
    start = data.find(b"\n") + 1
    return data[start:] if start and start * 2 <= len(data) else data[first_character(data) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLines:
    """Whole lines that arrived since the last look; a line that never ends is cut between characters.

    Attributes:
        text: The lines, line feeds included; the last of a stream may lack one.
        skipped: Bytes before them that the reader was too slow for.
    """

    text: str
    skipped: int


class LiveBuffer:
    """Lines on their way to one reader. The writer never waits: what the reader is too slow for is skipped and counted."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting = bytearray()
        self._skipped = 0
        self._ended = False
        self._news = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Adds the next piece."""
        self._waiting += data
        if len(self._waiting) > self._room:
            self._skip(len(self._waiting) - self._room)
        if _LF in data or self._skipped or len(self._waiting) * 2 >= self._room:
            self._news.set()

    def _skip(self, surplus: int) -> None:
        line_end = self._waiting.find(b"\n", surplus - 1) + 1
        surplus = line_end or surplus + first_character(self._waiting[surplus : surplus + _LONGEST_CHARACTER])
        del self._waiting[:surplus]
        self._skipped += surplus

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._news.set()

    def _take(self) -> LiveLines | None:
        end = self._waiting.rfind(b"\n") + 1
        if self._ended:
            end = len(self._waiting)
        elif not end and len(self._waiting) * 2 >= self._room:
            end = whole_characters(self._waiting)
        if not end and not self._skipped:
            return None
        taken = LiveLines(text=shown(self._waiting[:end]), skipped=self._skipped)
        del self._waiting[:end]
        self._skipped = 0
        return taken

    async def read(self) -> AsyncIterator[LiveLines]:
        """Yields until the stream has ended. For one reader; leaving it early loses nothing but the lines."""
        while True:
            await self._news.wait()
            self._news.clear()
            ended = self._ended
            if taken := self._take():
                yield taken
            if ended:
                return


def snapshot(text: BoundedText, spill: Path | None, spilled: int) -> Output:
    """What the outside may know of the output now."""
    head, tail = text.cut()
    return Output(
        head=shown(head),
        tail=shown(tail),
        total_bytes=text.total_bytes,
        total_lines=text.total_lines,
        omitted_bytes=text.total_bytes - len(head) - len(tail),
        omitted_lines=text.total_lines - head.count(b"\n") - tail.count(b"\n"),
        spill=spill,
        spilled_bytes=spilled,
    )
