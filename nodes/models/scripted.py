"""The scripted model: a loopback HTTP server that speaks the chat-completions wire and plays a script.

It is part of the package, so that the whole road of a model call, HTTP and server-sent events included, runs without
a key: in the demo, in tests, and wherever a conversation must be repeatable. Plain asyncio streams, because faults such
as a connection that is cut after n bytes are below what an HTTP framework lets one say.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from nodes.models.script import Player, Script, ScriptError
from nodes.models.script_wire import history_fault
from nodes.models.scripted_http import (
    MAX_HEAD,
    Hangup,
    RecordedRequest,
    Request,
    ScriptedAnswer,
    WatchedReader,
    error_body,
    read_request,
    send_json,
)


class ScriptedModel:
    """Plays a script on a loopback port; use it as an async context manager.

    Attributes:
        requests: Every chat-completions request so far, in order of arrival.
        connections_seen: Connections that clients have opened.

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
        self.connections_seen = 0
        self._player = Player(script)
        self._port = port
        self._strict = strict
        self._models = models
        self._api_key = api_key
        self._record = record
        self._changed = asyncio.Condition()
        self._busy = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
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
            await self._changed.wait_for(lambda: not self._busy)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self._protocol, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()  # each connection's task notices, and ends by itself
        await asyncio.gather(*self._connections)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(WatchedReader(limit=MAX_HEAD), self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_seen += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        if task is not None:
            task.set_name("scripted model connection")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            with contextlib.suppress(Hangup, ConnectionError, asyncio.IncompleteReadError):
                while (request := await read_request(reader)) is not None:
                    await self._answer(request, reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._api_key is not None and request.headers.get("authorization") != f"Bearer {self._api_key}":
            return await send_json(writer, 401, error_body("The API key is missing or wrong.", "invalid_api_key"))
        if (request.method, request.path) == ("GET", "/v1/models"):
            listed = [{"id": name, "object": "model"} for name in self._models or ()]
            return await send_json(writer, 200, {"object": "list", "data": listed})
        if (request.method, request.path) != ("POST", "/v1/chat/completions"):
            return await send_json(writer, 404, error_body(f"There is no {request.method} {request.path}.", "not_found"))
        try:
            body = json.loads(request.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return await send_json(writer, 400, error_body("The body is not a JSON object.", "invalid_request"))
        return await self._complete(body, reader, writer)

    async def _complete(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record = RecordedRequest(number=len(self.requests) + 1, body=body)
        await self._note(record, begins=True)
        left = reader.left if isinstance(reader, WatchedReader) else asyncio.Event()
        answer = ScriptedAnswer(writer=writer, record=record, left=left)
        try:
            refusal = self._refusal(body)
            if refusal is not None:
                await answer.whole(*refusal)
                return
            reply = self._player.next_reply(body)
            if reply is None:
                await answer.whole(
                    500, error_body(f"The script has no reply left for request {record.number}.", "script_exhausted")
                )
                return
            await answer.play(reply, body)
        finally:
            record.client_left = left.is_set()
            await self._note(record, begins=False)

    def _refusal(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if self._models is not None and body.get("model") not in self._models:
            return 404, error_body(f"The model {body.get('model')!r} does not exist.", "model_not_found")
        fault = history_fault(body.get("messages") or ()) if self._strict else None
        return None if fault is None else (400, error_body(f"Invalid messages: {fault}.", "invalid_request_error"))

    async def _note(self, record: RecordedRequest, *, begins: bool) -> None:
        if begins:
            self._busy += 1
            self.requests.append(record)
        else:
            if self._record is not None:
                await asyncio.to_thread(_append, self._record, record)
            self._busy -= 1
        async with self._changed:
            self._changed.notify_all()


def _append(path: Path, record: RecordedRequest) -> None:
    line = {"n": record.number, "status": record.status, "client_left": record.client_left, "body": record.body}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


async def serve(
    path: Path, *, port: int, strict: bool = False, record: Path | None = None, ready: asyncio.Event | None = None
) -> None:
    """Plays a script file until cancelled.

    Raises:
        ScriptError: The file cannot be used.
        OSError: The port is taken.
    """
    script = await asyncio.to_thread(Script.load, path)
    async with ScriptedModel(script, port=port, strict=strict, record=record) as server:
        sys.stdout.write(f"{path} is played on {server.base_url}\n")
        sys.stdout.flush()
        if ready is not None:
            ready.set()
        await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a script file from the command line; ends on Ctrl-C.

    Returns:
        0 after Ctrl-C, 2 when the file cannot be used or the port is taken.
    """
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
    except (ScriptError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
