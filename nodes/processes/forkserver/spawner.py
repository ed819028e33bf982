"""The spawner: one small process per runtime that forks a guard for every scope, because a fork is cheap and an exec is not.

It ends when the runtime does, after its last guard. A guard that is killed leaves its processes to the spawner, which is a
subreaper as well, and kills them.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
from typing import NoReturn

from nodes.processes.forkserver import containment, system, tree, wire
from nodes.processes.forkserver.guard import Guard

_ORPHAN_PATIENCE = 5
"""Milliseconds between two attempts at orphans that still live."""

_DEAF_TO = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGUSR1", "SIGUSR2")
)
"""Signals that spawner and guards outlive. They are handled, not ignored: a command must not inherit an ignored signal."""

_HARD_TIMES = 200
"""Milliseconds until the next attempt after the system had no process to give."""

_BREATH = 2
"""Milliseconds without a request after which the next guard is made ahead of time."""


def main(descriptor: int, runtime: int) -> NoReturn:
    """Serves one runtime until it is gone.

    Args:
        descriptor: The spawner's end of a socket pair that keeps datagrams apart.
        runtime: The process id of the runtime, which must be the parent.
    """
    try:
        Spawner(socket.socket(fileno=descriptor), runtime).serve()
    finally:
        os._exit(0)


def _unheard(_number: int, _frame: object) -> None:
    """Takes a signal and does nothing."""


class Spawner:
    """The serving loop."""

    def __init__(self, sock: socket.socket, runtime: int) -> None:
        system.name_process("checkrein-spawn")
        if system.LINUX:
            system.become_subreaper()
        for number in _DEAF_TO:
            signal.signal(number, _unheard)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.set_inheritable(sock.fileno(), False)
        self._sock = sock
        self._lister = tree.choose_lister()
        self._bell = tree.Bell()
        self._reaper = tree.Reaper(self._lister)
        self._guards: set[int] = set()
        self._orphaned = False
        self._ready: socket.socket | None = None
        self._refused: OSError | None = None
        self._runtime = tree.open_process(runtime)
        self._gone = os.getppid() != runtime  # asked after the pidfd was opened: then it is the runtime's, or it is gone
        self._poll = select.poll()
        for watched in (sock.fileno(), self._bell.descriptor, self._runtime):
            if watched is not None:
                self._poll.register(watched, select.POLLIN)
        gc.collect()
        gc.freeze()

    def serve(self) -> None:
        """Returns when the runtime is gone and no guard is left."""
        while not self._gone or self._guards or self._orphaned:
            ready = self._poll.poll(self._patience())
            for descriptor, _ in ready:
                self._take(descriptor)
            if self._orphaned:
                self._end_orphans()
            if not ready and self._ready is None and not self._gone:
                self._refused = self._try_fork()

    def _patience(self) -> int | None:
        if self._orphaned:
            return _ORPHAN_PATIENCE
        if self._ready is not None or self._gone:
            return None
        return _BREATH if self._refused is None else _HARD_TIMES

    def _take(self, ready: int) -> None:
        if ready == self._bell.descriptor:
            self._on_child()
        elif ready == self._runtime:
            self._runtime_gone(ready)
        else:
            self._on_request()

    def _runtime_gone(self, descriptor: int) -> None:
        self._gone = True
        self._poll.unregister(descriptor)
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def _on_request(self) -> None:
        if self._ready is None:
            self._refused = self._try_fork()  # before the request's descriptors exist here: it must inherit none of them
        word, descriptors = wire.receive(self._sock)
        if not word:
            self._runtime_gone(self._sock.fileno())
        elif word == wire.PROBE and len(descriptors) == 1:
            self._fork_probe(descriptors)
        elif word == wire.START and len(descriptors) == wire.DESCRIPTORS:
            self._hand_over(descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _hand_over(self, descriptors: list[int]) -> None:
        # A waiting guard that somebody has killed takes nothing: the lifeline closes, and the runtime asks again.
        ready, self._ready = self._ready, None
        if ready is not None:
            with ready:
                wire.send(ready, wire.START, descriptors)
        elif self._refused is not None:
            self._decline(descriptors[-1], self._refused)

    def _decline(self, control: int, refused: OSError) -> None:
        """Says in a guard's place that there is none."""
        failure = {"failed": "fork", "errno": refused.errno or 0, "text": str(refused)}
        with socket.socket(fileno=os.dup(control)) as answer:
            wire.send_line(answer, wire.not_started(failure))

    def _try_fork(self) -> OSError | None:
        try:
            self._fork_guard()
        except OSError as error:  # no process or descriptor to be had now: scopes that run are not to suffer for it
            return error
        return None

    def _fork_guard(self) -> None:
        """Makes a guard that waits for a scope."""
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            try:
                ours.close()
                self._leave_spawner()
                self._be_guard(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self._guards.add(pid)
        self._ready = ours

    def _be_guard(self, orders: socket.socket) -> None:
        guard = Guard(self._runtime, self._lister)
        _, descriptors = wire.receive(orders)
        orders.close()
        if len(descriptors) != wire.DESCRIPTORS:
            return
        body, *streams, control = descriptors
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        guard.run(wire.unpack_body(body), socket.socket(fileno=control))

    def _leave_spawner(self) -> None:
        signal.set_wakeup_fd(-1)
        self._bell.close()
        self._sock.close()

    def _fork_probe(self, descriptors: list[int]) -> None:
        pid = os.fork()
        if pid:
            self._guards.add(pid)
            return
        try:
            self._leave_spawner()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with socket.socket(fileno=descriptors[0]) as answer:
                answer.sendall(json.dumps(containment.probe()).encode() + b"\n")
        finally:
            os._exit(0)

    def _on_child(self) -> None:
        self._bell.silence()
        self._reaper.reap()
        ended = self._reaper.statuses
        # An orphan can arrive a moment before or after the end of its guard is noticed, and a guard that gave up leaves some.
        self._orphaned = self._orphaned or any(status for status in ended.values()) or bool(ended.keys() - self._guards)
        self._guards -= ended.keys()
        ended.clear()

    def _end_orphans(self) -> None:
        self._reaper.sweep(self._guards)
        self._on_child_quietly()
        self._orphaned = any(child not in self._guards for child in self._lister(os.getpid()))

    def _on_child_quietly(self) -> None:
        self._reaper.reap()
        self._guards -= self._reaper.statuses.keys()
        self._reaper.statuses.clear()
        self._reaper.killed.clear()
