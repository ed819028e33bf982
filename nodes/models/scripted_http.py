"""The HTTP side of the scripted model: requests read from a connection, and answers written to it, faults included."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from nodes.models.script import ScriptedReply
from nodes.models.script_wire import stream_events, whole_answer

MAX_HEAD = 65_536
_JSON = "application/json"
_EVENTS = "text/event-stream"


@dataclass(slots=True, kw_only=True)
class RecordedRequest:
    """One request that the server got, and how its answer went.

    Attributes:
        number: 1 for the first chat-completions request.
        body: The request's JSON.
        status: The answered HTTP status; None while there is no answer.
        sent: Bytes of the answer's body that were handed to the connection.
        client_left: True when the client closed the connection before the answer was complete.
    """

    number: int
    body: dict[str, Any]
    status: int | None = None
    sent: int = 0
    client_left: bool = False

    @property
    def model(self) -> str:
        """The model that the request names."""
        return str(self.body.get("model", ""))


class Hangup(Exception):  # noqa: N818  (not an error: the script says so)
    """The script ends the connection here."""


class WatchedReader(asyncio.StreamReader):
    """A reader that says at once that its client is gone, also while nobody reads."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        """Called by the transport when the client has closed its side."""
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: Exception) -> None:
        """Called by the transport when the connection broke."""
        super().set_exception(exc)
        self.left.set()


@dataclass(slots=True)
class Request:
    """One HTTP request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class ScriptedAnswer:
    """One HTTP answer on its way out."""

    writer: asyncio.StreamWriter
    record: RecordedRequest
    left: asyncio.Event

    async def whole(self, status: int, body: str | dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Answers with a status and a body."""
        self.record.status = status
        await send_json(self.writer, status, body, headers)

    async def play(self, reply: ScriptedReply, body: Mapping[str, Any]) -> None:
        """Answers as the script says.

        Raises:
            Hangup: The connection ends here.
        """
        if reply.hang:
            await self._silence()
        await self._pause(reply.delay)
        number = self.record.number
        if reply.status != HTTPStatus.OK:
            await self.whole(reply.status, "" if reply.body is None else reply.body, reply.headers)
        elif not body.get("stream"):
            await self.whole(200, whole_answer(reply, number=number, body=body), reply.headers)
        else:
            await self._stream(reply, stream_events(reply, number=number, body=body))

    async def _stream(self, reply: ScriptedReply, events: Sequence[bytes]) -> None:
        self.record.status = 200
        chunked = reply.framing == "chunked"
        framing = {"transfer-encoding": "chunked"} if chunked else {"connection": "close"}
        self.writer.write(_head(200, {"content-type": _EVENTS, **framing, **reply.headers}))
        await self.writer.drain()
        for packet in _packets(reply, events):
            await self._limits(reply)
            cut = packet[: _room(reply, self.record.sent)]
            if cut:
                self.writer.write(b"%x\r\n%b\r\n" % (len(cut), cut) if chunked else cut)
                await self.writer.drain()
                self.record.sent += len(cut)
            await self._limits(reply)
            await self._pause(reply.pause)
        if not chunked:
            raise Hangup
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def _limits(self, reply: ScriptedReply) -> None:
        if reply.disconnect_after is not None and self.record.sent >= reply.disconnect_after:
            raise Hangup
        if reply.silent_after is not None and self.record.sent >= reply.silent_after:
            await self._silence()

    async def _silence(self) -> None:
        await self.left.wait()
        raise Hangup

    async def _pause(self, seconds: float) -> None:
        """Sleeps as the script says, but ends the answer at once when the client leaves."""
        if seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.left.wait(), seconds)
        elif self.left.is_set():
            raise Hangup
        if self.left.is_set():
            raise Hangup


def _packets(reply: ScriptedReply, events: Sequence[bytes]) -> list[bytes]:
    if reply.split is None and not reply.split_at:
        return list(events)
    stream = b"".join(events)
    size = reply.split
    cuts = sorted(place for place in reply.split_at if place < len(stream)) if size is None else range(size, len(stream), size)
    edges = [0, *cuts, len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges) if start < end]


def _room(reply: ScriptedReply, sent: int) -> int | None:
    limits = [limit - sent for limit in (reply.disconnect_after, reply.silent_after) if limit is not None]
    return min(limits) if limits else None


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection, or None when the client has closed it."""
    try:
        letter = await reader.readexactly(1)
        if not letter.isalpha():  # not HTTP; a TLS handshake, for one, would wait for an answer for ever
            return None
        head = letter + await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    length = headers.get("content-length", "0")
    body = await reader.readexactly(int(length) if length.isdigit() else 0)
    return Request(method=method, path=rest.partition(" ")[0].partition("?")[0], headers=headers, body=body)


async def send_json(
    writer: asyncio.StreamWriter, status: int, body: str | dict[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    """Writes a whole answer; text goes out as it is, an object as JSON."""
    content = body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()
    writer.write(_head(status, {"content-type": _JSON, "content-length": str(len(content)), **(headers or {})}) + content)
    await writer.drain()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode("latin-1")


def error_body(message: str, kind: str) -> dict[str, Any]:
    """An error in the shape that OpenAI documents."""
    return {"error": {"message": message, "type": kind, "code": kind}}
