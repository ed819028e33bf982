"""The scripted model: a loopback HTTP server that speaks the chat-completions wire and plays a script.

It is part of the package, so that the whole road of a model call, HTTP and server-sent events included, runs without
a key: in the demo, in tests, and wherever a conversation must be repeatable. Plain asyncio streams, because faults such
as a connection that is cut after n bytes are below what an HTTP framework lets one say.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from nodes.models.script import Player, Script, ScriptedReply
from nodes.models.script_wire import history_fault, stream_events, whole_answer

_MAX_HEAD = 65_536
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


class _Hangup(Exception):  # noqa: N818  (not an error: the script says so)
    """The script ends the connection here."""


class _WatchedReader(asyncio.StreamReader):
    """A reader that says at once that its client is gone, also while nobody reads."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self.left = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.left.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.left.set()


@dataclass(slots=True)
class _Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class ScriptedModel:
    """Plays a script on a loopback port; use it as an async context manager.

    Attributes:
        requests: Every chat-completions request so far, in order of arrival.

    Args:
        script: What to play.
        port: Port on 127.0.0.1; 0 picks a free one.
        strict: Answer 400 to a history that real providers refuse (unpaired calls, repeated ids).
        models: Names that exist; any other answers 404. None means every name exists.
        api_key: The bearer key that requests must carry; anything else answers 401. None asks for none.
        record: A file to which each finished request is appended as one JSON line, without headers.
    """

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        strict: bool = False,
        models: Sequence[str] | None = None,
        api_key: str | None = None,
        record: Path | None = None,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        self._player = Player(script)
        self._port = port
        self._strict = strict
        self._models = models
        self._api_key = api_key
        self._record = record
        self._changed = asyncio.Condition()
        self._busy = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """What a client calls its base URL, `/v1` included."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def statuses(self) -> list[int | None]:
        """The status of each answer, in order of arrival."""
        return [request.status for request in self.requests]

    async def wait_for(self, count: int) -> list[RecordedRequest]:
        """Waits until at least `count` requests have arrived, and returns them all."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def wait_idle(self) -> None:
        """Waits until every answer that was begun has ended, one way or the other."""
        async with self._changed:
            await self._changed.wait_for(lambda: all(r.status is not None for r in self.requests) and not self._busy)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self._protocol, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(_WatchedReader(limit=_MAX_HEAD), self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            task.set_name("scripted model connection")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            with contextlib.suppress(_Hangup, ConnectionError, asyncio.IncompleteReadError):
                while (request := await _read_request(reader)) is not None:
                    await self._answer(request, reader, writer)
        finally:
            writer.close()

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return await _send_json(writer, 401, _error("The API key is missing or wrong.", "invalid_api_key"))
        if (request.method, request.path) == ("GET", "/v1/models"):
            listed = [{"id": name, "object": "model"} for name in self._models or ()]
            return await _send_json(writer, 200, {"object": "list", "data": listed})
        if (request.method, request.path) != ("POST", "/v1/chat/completions"):
            return await _send_json(writer, 404, _error(f"There is no {request.method} {request.path}.", "not_found"))
        try:
            body = json.loads(request.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return await _send_json(writer, 400, _error("The body is not a JSON object.", "invalid_request"))
        return await self._complete(body, reader, writer)

    async def _complete(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record = RecordedRequest(number=len(self.requests) + 1, body=body)
        await self._note(record, begins=True)
        left = reader.left if isinstance(reader, _WatchedReader) else asyncio.Event()
        answer = _Answer(writer=writer, record=record, left=left)
        try:
            refusal = self._refusal(body)
            if refusal is not None:
                await answer.whole(*refusal)
                return
            reply = self._player.next_reply(body)
            if reply is None:
                await answer.whole(
                    500, _error(f"The script has no reply left for request {record.number}.", "script_exhausted")
                )
                return
            await answer.play(reply, body)
        finally:
            record.client_left = left.is_set()
            await self._note(record, begins=False)

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if self._models is not None and body.get("model") not in self._models:
            return 404, _error(f"The model {body.get('model')!r} does not exist.", "model_not_found")
        fault = history_fault(body.get("messages") or ()) if self._strict else None
        return None if fault is None else (400, _error(f"Invalid messages: {fault}.", "invalid_request_error"))

    async def _note(self, record: RecordedRequest, *, begins: bool) -> None:
        if begins:
            self._busy += 1
            self.requests.append(record)
        else:
            self._busy -= 1
            self._write(record)
        async with self._changed:
            self._changed.notify_all()

    def _write(self, record: RecordedRequest) -> None:
        if self._record is not None:
            line = {"n": record.number, "status": record.status, "client_left": record.client_left, "body": record.body}
            with self._record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


@dataclass(slots=True, kw_only=True)
class _Answer:
    """One HTTP answer on its way out."""

    writer: asyncio.StreamWriter
    record: RecordedRequest
    left: asyncio.Event

    async def whole(self, status: int, body: str | dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.record.status = status
        await _send_json(self.writer, status, body, headers)

    async def play(self, reply: ScriptedReply, body: Mapping[str, Any]) -> None:
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
            raise _Hangup
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def _limits(self, reply: ScriptedReply) -> None:
        if reply.disconnect_after is not None and self.record.sent >= reply.disconnect_after:
            raise _Hangup
        if reply.silent_after is not None and self.record.sent >= reply.silent_after:
            await self._silence()

    async def _silence(self) -> None:
        await self.left.wait()
        raise _Hangup

    async def _pause(self, seconds: float) -> None:
        """Sleeps as the script says, but ends the answer at once when the client leaves."""
        if seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.left.wait(), seconds)
        elif self.left.is_set():
            raise _Hangup
        if self.left.is_set():
            raise _Hangup


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


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """The next request of a connection, or None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    length = headers.get("content-length", "0")
    body = await reader.readexactly(int(length) if length.isdigit() else 0)
    return _Request(method=method, path=rest.partition(" ")[0].partition("?")[0], headers=headers, body=body)


async def _send_json(
    writer: asyncio.StreamWriter, status: int, body: str | dict[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()
    writer.write(_head(status, {"content-type": _JSON, "content-length": str(len(content)), **(headers or {})}) + content)
    await writer.drain()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode("latin-1")


def _error(message: str, kind: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": kind}}


async def serve(
    path: Path, *, port: int, strict: bool = False, record: Path | None = None, ready: asyncio.Event | None = None
) -> None:
    """Plays a script file until cancelled.

    Raises:
        ScriptError: The file cannot be used.
        OSError: The port is taken.
    """
    async with ScriptedModel(Script.load(path), port=port, strict=strict, record=record) as server:
        sys.stdout.write(f"{path} is played on {server.base_url}\n")
        sys.stdout.flush()
        if ready is not None:
            ready.set()
        await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a script file from the command line; ends on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m nodes.models.scripted", description="Play a model script over HTTP.")
    parser.add_argument("file", type=Path, help="the script, a TOML file")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--strict", action="store_true", help="answer 400 to histories that real providers refuse")
    parser.add_argument("--requests", type=Path, default=None, help="append each request to this file as a JSON line")
    chosen = parser.parse_args(arguments)
    try:
        asyncio.run(serve(chosen.file, port=chosen.port, strict=chosen.strict, record=chosen.requests))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
