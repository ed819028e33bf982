"""The runtime's end of the spawner: starting it, sending it requests, noticing that it is gone."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from nodes.processes.errors import SpawnerFailedError
from nodes.processes.forkserver import system, tree, wire

_ROOT = Path(__file__).resolve().parents[2]
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from nodes.processes.forkserver.spawner import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)
_INHERITED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What a Python may need to start at all. Nothing else of the runtime's environment reaches the spawner."""

_EXIT_PATIENCE = 10.0
_LAST_WORDS = 2000


class SpawnerLink:
    """One spawner process. Every method but `start` belongs to the loop."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket, errors: int) -> None:
        self._process = process
        self._sock = sock
        self._errors = errors

    @classmethod
    def start(cls) -> SpawnerLink:
        """Starts a spawner; blocking, for a thread.

        Raises:
            SpawnerFailedError: This Python could not be started.
        """
        tree.boot_id()  # read here, in a thread, and known to every scope from then on
        kind = socket.SOCK_SEQPACKET if system.LINUX else socket.SOCK_DGRAM
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        ours.setblocking(False)
        errors = wire.pack_bytes(b"", "checkrein-errors")
        descriptor = theirs.fileno()
        argv = [sys.executable, "-S", "-E", "-I", "-c", _BOOT, str(_ROOT), str(descriptor), str(os.getpid())]
        try:
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - this very Python, with arguments of our own
                    argv,
                    cwd="/",
                    env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            os.close(errors)
            raise SpawnerFailedError(str(error)) from error
        return cls(process, ours, errors)

    @property
    def pid(self) -> int:
        """The spawner's process id."""
        return self._process.pid

    async def send(self, word: bytes, descriptors: Sequence[int]) -> bool:
        """Sends one request with its descriptors, which stay the caller's. False: the spawner is gone."""
        rights = array.array("i", descriptors)
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._sock.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                return True
            except BlockingIOError:
                await _writable(loop, self._sock)
            except OSError:
                return False

    def last_words(self) -> str:
        """What it wrote to its standard error, the end of it."""
        size = os.fstat(self._errors).st_size
        return os.pread(self._errors, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace").strip()

    def hang_up(self) -> None:
        """Closes the socket: the spawner ends after its last guard."""
        self._sock.close()

    async def gone(self, executor: Executor) -> None:
        """Hangs up and waits until the process is gone and reaped; kills it when it does not go."""
        self.hang_up()
        await asyncio.get_running_loop().run_in_executor(executor, self._reap)
        os.close(self._errors)

    def _reap(self) -> None:
        try:
            self._process.wait(_EXIT_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def _writable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    ready = asyncio.Event()
    loop.add_writer(sock.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(sock.fileno())
