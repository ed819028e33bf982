"""What runtime, spawner and guard say to each other.

A request is one small datagram on the spawner's socket; its body is an unlinked file that travels with it, so that no size
of arguments or environment meets a limit of the socket. Afterwards runtime and guard talk on a stream socket of their own,
one JSON object a line. That socket is the lifeline too: only the runtime holds its other end.
"""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any

Message = dict[str, Any]

START = b"start"
"""With five descriptors: body, stdin, stdout, stderr, guard's end of the lifeline."""

PROBE = b"probe"
"""With one descriptor: the end of the socket to answer on."""

DESCRIPTORS = 5
_MAXIMUM_LINE = 1 << 20


def pack_body(message: Message) -> int:
    """An anonymous file that holds the message, rewound; the caller closes it."""
    return pack_bytes(json.dumps(message).encode(), "checkrein-request")


def pack_bytes(content: bytes, name: str) -> int:
    """An anonymous file with this content, its position at the start; the caller closes it."""
    descriptor = os.memfd_create(name) if hasattr(os, "memfd_create") else _unlinked_file(name)
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, memoryview(content)[done:], done)
    return descriptor


def _unlinked_file(name: str) -> int:
    # By hand: `tempfile` would bring a megabyte of modules into the spawner, which every fork pays for.
    path = f"/tmp/{name}-{os.urandom(16).hex()}"  # noqa: S108 - private by O_EXCL and its mode, and gone at once
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)  # noqa: PTH108 - as above for pathlib
    return descriptor


def unpack_body(descriptor: int) -> Message:
    """Reads what `pack_body` wrote, and closes the descriptor."""
    try:
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
    message: Message = json.loads(content)
    return message


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """One request and its descriptors, none of which outlives an exec. Empty bytes: the other side is gone."""
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    room = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    try:
        word, ancillary, _, _ = sock.recvmsg(64, room, flags)
    except ConnectionError:
        return b"", []
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return word, list(found)


def send(sock: socket.socket, word: bytes, descriptors: list[int]) -> bool:
    """One request with its descriptors, which stay the sender's. False: the other side is gone."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    try:
        return sock.sendmsg([word], rights) == len(word)
    except ConnectionError:
        return False


def send_line(sock: socket.socket, message: Message) -> None:
    """Says one thing. A reader that is gone, or that stopped reading, is no reason to stop killing."""
    try:
        sock.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)
    except OSError:
        return


def not_started(failure: Message) -> Message:
    """The verdict on a command that never began."""
    return {
        "verdict": "not_started",
        "exit_code": None,
        "killed": 0,
        "leftovers": 0,
        "empty": True,
        "milliseconds": 0.0,
        "failure": failure,
    }


class Lines:
    """Cuts the stream into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. A line beyond 1 MiB is not ours: it is dropped."""
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) < _MAXIMUM_LINE else b""
        return [json.loads(line) for line in whole if line]
