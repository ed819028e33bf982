"""The first instructions of a command, between fork and exec, and how they tell the guard what went wrong.

A fresh child pays for every page that it touches, so everything that can be done before the fork is done there: the ruleset
is made, the folder entered, and signals have handlers (which exec resets) instead of being ignored (which exec keeps).
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
from typing import NoReturn

from nodes.processes.forkserver import containment, system
from nodes.processes.forkserver.domain import Domain, prepare
from nodes.processes.forkserver.wire import Message

_DIES_FIRST = b"500"
"""oom_score_adj of a command: when memory runs out the kernel takes it before the runtime and the guards."""


class Notes:
    """A pipe from the child to the guard that exec closes: notes, then either a failure or silence, which is success."""

    def __init__(self) -> None:
        self.read, self._write = os.pipe()
        os.set_blocking(self.read, False)
        self._text = b""

    def close_writer(self) -> None:
        """In the guard, after the fork."""
        os.close(self._write)

    def say(self, **note: object) -> None:
        """In the child."""
        os.write(self._write, json.dumps(note).encode() + b"\n")

    def collect(self) -> Message | None:
        """In the guard, whenever readable: everything that was said, once the child has closed its end."""
        while True:
            try:
                part = os.read(self.read, 65536)
            except BlockingIOError:
                return None
            if not part:
                break
            self._text += part
        os.close(self.read)
        merged: Message = {}
        for line in self._text.splitlines():
            merged.update(json.loads(line))
        return merged


def failure(stage: str, error: OSError | system.AbsentError | ValueError) -> Message:
    """How a failed step before the command's first instruction is said."""
    if isinstance(error, system.AbsentError):
        return {"failed": stage, "errno": error.number, "text": str(error)}
    number = error.errno if isinstance(error, OSError) else errno.EINVAL
    return {"failed": stage, "errno": number or 0, "text": str(error)}


def execute(request: Message, notes: Notes, guard: int, domain: Domain) -> NoReturn:
    """Turns this fresh child into the command. Never returns: what fails is said in `notes` with the stage it failed at."""
    stage = "guard"
    try:
        _die_with(guard)
        os.setsid()
        stage = "scope"
        _enter(domain, request, notes)
        stage = "exec"
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - running it is the job
    except (OSError, system.AbsentError, ValueError) as error:
        notes.say(**failure(_stage(stage, error, request), error))
    finally:
        os._exit(127)


def _enter(domain: Domain, request: Message, notes: Notes) -> None:
    try:
        domain.enter()
    except system.AbsentError:
        if request["containment"] != "auto" or request["confinement"] is not None:
            raise
        notes.say(rung=containment.REAP)  # a filter lets rulesets be made and not be entered


def _die_with(guard: int) -> None:
    # Only a backstop for a guard that is killed: it reaches the main process alone. The guard has one thread, so the rule
    # that this signal follows the parent's thread does no harm here.
    if not system.LINUX:
        return
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")
    if os.getppid() != guard:
        os._exit(127)


def _stage(stage: str, error: Exception, request: Message) -> str:
    if stage != "exec" or not isinstance(error, FileNotFoundError):
        return stage
    program = request["argv"][0]
    return "interpreter" if "/" in program and os.access(program, os.F_OK) else "exec"


def volunteer(pid: int) -> None:
    """Puts a process first in line when memory runs out. Raising one's own chance to die needs no privilege."""
    try:
        descriptor = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, _DIES_FIRST)
    except OSError:
        return
    finally:
        os.close(descriptor)


def lead_namespace(request: Message, notes: Notes, report: int) -> NoReturn:
    """Life of the first process of a pid namespace: starts the command, reaps, and ends with it; the kernel does the rest.

    `report` takes the command's wait status and how many processes it left, because an exit code cannot carry both.
    """
    try:
        system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL, "parent death signal")
        signal.set_wakeup_fd(-1)
        containment.show_own_processes()
        domain = prepare(request)  # here, because its /proc is another one than the guard's
        notes.say(confinement=domain.report)
    except system.AbsentError as error:
        notes.say(**failure("namespace", error))
        os._exit(127)
    main = os.fork()
    if main == 0:
        os.close(report)
        execute(request, notes, 1, domain)
    notes.close_writer()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    status = _reap_until(main)
    left = _linger(request["linger"])
    os.write(report, json.dumps({"status": status, "leftovers": left}).encode())
    os._exit(0)


def _reap_until(main: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == main:
            return status


def _linger(seconds: float) -> int:
    # Children that end by themselves right after the command (a `tee` behind a process substitution) may do so.
    step = 0.005
    for _ in range(max(1, round(seconds / step))):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return 0
        select.select([], [], [], step)
    with os.scandir("/proc") as entries:
        return sum(entry.name.isdigit() for entry in entries) - 1


def nothing_but_null() -> None:
    """In the guard: lets go of the command's streams, so that a reader sees their end as soon as the command is gone."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
