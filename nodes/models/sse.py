"""Reads server-sent events from bytes that arrive in any pieces (WHATWG HTML, section 9.2)."""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_STRAY = 200
_OTHER_FIELDS = (b":", b"id", b"retry", b"event")


class OversizedEventError(Exception):
    """One event is larger than `MAX_EVENT_BYTES`. Raised to the stream's reader, which names the model."""


class Event(NamedTuple):
    """One event: its name (empty when the stream gives none) and its data lines, joined by line feeds."""

    name: bytes
    data: bytes


class EventReader:
    """Feeds on bytes and gives complete events. Accepts LF, CR and CRLF, also mixed and cut between two packets.

    Attributes:
        stray: The start of the first line that is no field at all: what a person needs to see when an answer is no stream.
    """

    __slots__ = ("_data", "_name", "_partial", "_size", "_skip_lf", "_started", "stray")

    def __init__(self) -> None:
        self.stray = b""
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = 0
        self._skip_lf = False
        self._started = False

    def feed(self, packet: bytes) -> list[Event]:
        """The events that this packet completes.

        Raises:
            OversizedEventError: An event outgrew its bound.
        """
        if self._skip_lf and packet:
            self._skip_lf = False
            packet = packet.removeprefix(b"\n")
        if b"\r" in packet:
            self._skip_lf = packet.endswith(b"\r")
            packet = packet.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(packet)
        if self._size > MAX_EVENT_BYTES:
            raise OversizedEventError
        if b"\n" not in packet:
            self._partial.append(packet)
            return []
        first, *rest = packet.split(b"\n")
        lines = [b"".join([*self._partial, first]), *rest]
        tail = lines.pop()
        self._partial = [tail] if tail else []
        return self._take(lines, len(tail))

    def close(self) -> Event | None:
        """What stands at the end of the stream without the blank line that completes an event, or None."""
        line = b"".join(self._partial)
        if line:
            self._field(line if self._started else line.removeprefix(_BOM))
        return Event(self._name, b"\n".join(self._data)) if self._data else None

    def _take(self, lines: list[bytes], tail: int) -> list[Event]:
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[Event] = []
        for line in lines:
            if line:
                self._field(line)
                continue
            if self._data:
                events.append(Event(self._name, b"\n".join(self._data)))
            self._data = []
            self._name = b""
            self._size = tail
        return events

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[6:].strip()
        elif line == b"data":
            self._data.append(b"")
        elif not self.stray and not line.startswith(_OTHER_FIELDS):
            self.stray = line[:_STRAY]
