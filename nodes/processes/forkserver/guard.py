"""The guard: one process per scope that starts it, owns its deadline, ends it, and proves that it is empty.

It ends the scope when the runtime says so, when the runtime's end of the lifeline closes, when the runtime's process is gone
(another process may hold a copy of that end), when the deadline passes, when the command itself ends, or on SIGUSR1
(recovery by another process). SIGKILL at once: a polite signal gives a command the time for one more write.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import NoReturn

from nodes.processes.forkserver import command, containment, system, tree, wire
from nodes.processes.forkserver.domain import Domain
from nodes.processes.forkserver.domain import prepare as domain_of
from nodes.processes.forkserver.wire import Message

EXIT = "exit"
CANCEL = "cancel"
TIMEOUT = "timeout"
RUNTIME_GONE = "runtime_gone"
RECOVERED = "recovered"
NOT_STARTED = "not_started"

_CELL_BUDGET = 2.0
_LOOK_EVERY = 50.0
"""Milliseconds between two looks at the descendants, where the system does not hand orphans to the guard."""


class Guard:
    """One scope's keeper. `run` never returns. Polite signals are ignored, as the spawner has set it up."""

    def __init__(self, runtime: int | None, lister: tree.Lister) -> None:
        """Gets ready for a scope that is not known yet; made ahead of time, so that a start need not wait for it.

        Args:
            runtime: A pidfd of the runtime, or None where there is no such thing.
            lister: How to list children on this kernel.
        """
        system.name_process("checkrein-guard")
        if system.LINUX:
            system.become_subreaper()
        signal.signal(signal.SIGUSR1, self._on_recovery)
        self._lines = wire.Lines()
        self._runtime = runtime
        self._lister = lister
        self._bell = tree.Bell()
        self._reaper = tree.Reaper(lister)
        self._notes = command.Notes()
        self._report: int | None = None
        self._main = 0
        self._rung = ""
        self._confinement: Message = {}
        self._proven = False
        self._failure: Message | None = None
        self._reason: str | None = None
        self._linger_until: float | None = None
        self._kept: dict[int, int] = {}
        self._poll = select.poll()
        self._roads: dict[int, Callable[[], None]] = {}

    def run(self, request: Message, control: socket.socket) -> NoReturn:
        """Keeps one scope from its first process to the verdict, and ends."""
        self._request = request
        self._control = control
        self._rung = request["containment"]
        self._reason = None  # whatever was said to it while it waited meant no scope of its
        try:
            self._prepare()
            if self._reason is None:
                self._launch()
            command.nothing_but_null()
            while self._reason is None:
                self._turn()
            self._proven = self._finish()
        finally:
            os._exit(0 if self._proven else 1)  # 1 tells the spawner to look for what is left

    def _prepare(self) -> None:
        stat = tree.stat_of(os.getpid())
        wire.send_line(self._control, {"guard": os.getpid(), "birth": stat.birth if stat else 0})
        self._watch(self._control.fileno(), self._on_control)
        self._watch(self._bell.descriptor, self._on_child)
        if self._runtime is not None:
            self._watch(self._runtime, self._on_runtime_gone)
        self._take_ready(0)  # a stop that was sent before the start must win

    def _watch(self, descriptor: int, road: Callable[[], None]) -> None:
        self._roads[descriptor] = road
        self._poll.register(descriptor, select.POLLIN)

    def _launch(self) -> None:
        stage = "namespace"
        try:
            if self._strict:
                containment.enter_namespace()
            stage = "confinement"
            domain = domain_of({**self._request, "confinement": None} if self._strict else self._request)
            stage = "cwd"
            os.chdir(self._request["cwd"])
        except (OSError, ValueError, system.AbsentError) as error:
            self._fail(command.failure(stage, error))
            return
        self._rung, self._confinement = domain.rung, domain.report
        try:
            self._fork(domain)
        except OSError as error:
            self._fail(command.failure("fork", error))
        finally:
            domain.close()

    def _fork(self, domain: Domain) -> None:
        guard = os.getpid()
        read, write = os.pipe()
        self._main = os.fork()
        if self._main == 0:
            if self._strict:
                command.lead_namespace(self._request, self._notes, write)
            command.execute(self._request, self._notes, guard, domain)
        os.close(write)
        self._report = read
        self._notes.close_writer()
        self._watch(self._notes.read, self._on_notes)
        command.volunteer(self._main)

    @property
    def _strict(self) -> bool:
        return bool(self._request["containment"] == containment.NAMESPACE)

    def _fail(self, failure: Message) -> None:
        self._failure = failure
        self._reason = NOT_STARTED

    def _turn(self) -> None:
        self._take_ready(self._patience())
        now = time.monotonic()
        if self._reason is None and self._linger_until is not None and now >= self._linger_until:
            self._reason = EXIT
        deadline = self._request["deadline"]
        if self._reason is None and deadline is not None and now >= deadline:
            self._reason = TIMEOUT

    def _patience(self) -> float | None:
        if not system.LINUX:
            self._reaper.remember()
            return _LOOK_EVERY
        ends = [end for end in (self._request["deadline"], self._linger_until) if end is not None]
        return max(0.0, (min(ends) - time.monotonic()) * 1000) if ends else None

    def _take_ready(self, milliseconds: float | None) -> None:
        for descriptor, _ in self._poll.poll(milliseconds):
            if descriptor in self._roads:
                self._roads[descriptor]()

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._roads[descriptor]

    def _on_recovery(self, _number: int, _frame: object) -> None:
        self._reason = self._reason or RECOVERED

    def _on_runtime_gone(self) -> None:
        self._reason = self._reason or RUNTIME_GONE

    def _on_control(self) -> None:
        try:
            data = self._control.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._forget(self._control.fileno())
            self._on_runtime_gone()
        for message in self._lines.feed(data):
            self._obey(message)

    def _obey(self, message: Message) -> None:
        order = message.get("do")
        if order == "stop":
            self._reason = self._reason or message.get("reason", CANCEL)
        elif order == "mark":
            below = (pid for _, pid in tree.descendants(os.getpid(), self._lister) if pid != self._main)
            self._kept = {pid: stat.birth for pid in below if (stat := tree.stat_of(pid))}
            wire.send_line(self._control, {"marked": len(self._kept)})
        elif order == "interrupt":
            self._interrupt(with_signal=message["signal"])

    def _interrupt(self, *, with_signal: bool) -> None:
        """Ends what the main process started since the mark, and keeps the main process."""
        began = time.monotonic()
        before = len(self._reaper.killed)
        if with_signal:
            os.kill(self._main, signal.SIGINT)
        kept = [pid for pid, birth in self._kept.items() if (stat := tree.stat_of(pid)) and stat.birth == birth]
        empty = self._reaper.kill_below(self._main, kept, self._bell, _CELL_BUDGET)
        killed = len(self._reaper.killed) - before
        wire.send_line(self._control, {"swept": killed, "empty": empty, "milliseconds": _since(began)})
        self._on_child()

    def _on_notes(self) -> None:
        notes = self._notes.collect()
        if notes is None:
            return
        self._forget(self._notes.read)
        self._confinement = notes.get("confinement", self._confinement)
        self._rung = notes.get("rung", self._rung)
        if "failed" in notes:
            self._fail(notes)
            return
        stat = tree.stat_of(self._main)
        birth = stat.birth if stat else 0
        wire.send_line(
            self._control, {"main": self._main, "main_birth": birth, "rung": self._rung, "confinement": self._confinement}
        )

    def _on_child(self) -> None:
        self._bell.silence()
        empty = self._reaper.reap()
        self._reaper.forget_all_but(self._main)
        if self._main not in self._reaper.statuses or (self._linger_until is not None and not empty):
            return
        if self._notes.read in self._roads:
            self._on_notes()  # a command that ended at once still said whether it began
        if self._reason is None:
            if empty or self._strict:
                self._reason = EXIT
            else:
                self._linger_until = time.monotonic() + self._request["linger"]

    def _finish(self) -> bool:
        began = time.monotonic()
        if self._main and self._rung == containment.NAMESPACE and self._main not in self._reaper.statuses:
            self._reaper.sweep()  # counts; the first process's death is the end of all of them
        empty = self._reaper.kill_all(self._bell)
        status, leftovers = self._ending()
        verdict = {
            "verdict": self._reason,
            "exit_code": None if status is None else os.waitstatus_to_exitcode(status),
            "killed": len(self._reaper.killed) + leftovers,
            "leftovers": len(self._reaper.killed) + leftovers if self._reason == EXIT else 0,
            "empty": empty,
            "milliseconds": _since(began),
            "rung": self._rung,
            "failure": self._failure,
        }
        wire.send_line(self._control, verdict)
        return empty

    def _ending(self) -> tuple[int | None, int]:
        status = self._reaper.statuses.get(self._main)
        if self._rung != containment.NAMESPACE or self._report is None:
            return status, 0
        os.set_blocking(self._report, False)
        try:
            report = json.loads(os.read(self._report, 4096) or b"{}")
        except (BlockingIOError, ValueError):
            report = {}
        return report.get("status", status), report.get("leftovers", 0)


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)
