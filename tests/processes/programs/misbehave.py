"""Commands that do what commands should not: they fork away, hide, refuse signals, come back. Each ends itself in 20 s.

Started as `python -S -E -I misbehave.py WAY FILE`. A living process writes its process id and the monotonic time in
nanoseconds to FILE every 40 ms, which is how a test sees that it went on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

LIFE = 20.0
PULSE = 0.04
_BORN = time.monotonic()


def pulse(path: str) -> None:
    """One line of life."""
    with open(path, "ab", buffering=0) as file:  # noqa: PTH123 - pathlib would double the start time of a command
        file.write(b"%d %d\n" % (os.getpid(), time.monotonic_ns()))


def living() -> bool:
    """Whether this program's time has not run out."""
    return time.monotonic() - _BORN < LIFE


def beat(path: str) -> None:
    """Goes on until its time is out."""
    while living():
        pulse(path)
        time.sleep(PULSE)


def away(times: int) -> None:
    """Leaves the parent behind by so many forks; only the last child returns."""
    for _ in range(times):
        if os.fork():
            os._exit(0)


def twice_forked(path: str) -> None:
    """An orphan in the command's own session."""
    away(2)
    beat(path)


def daemon(path: str) -> None:
    """A proper daemon: new session, no terminal, no working folder, no descriptors."""
    away(1)
    os.setsid()
    away(1)
    os.chdir("/")
    os.umask(0)
    os.closerange(0, 512)
    beat(path)


def deaf(path: str) -> None:
    """Closes every descriptor, so that no end of a pipe tells when it goes."""
    os.closerange(0, 512)
    beat(path)


def stubborn(path: str) -> None:
    """Takes no polite signal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    beat(path)


def disguised(path: str) -> None:
    """Goes by the name of a kernel thread."""
    os.setsid()
    ctypes.CDLL(None).prctl(15, b"kworker/1:7", 0, 0, 0)
    beat(path)


def relay(path: str) -> None:
    """A new process in a new session ten times a second, each the heir of the one before."""
    while living():
        pulse(path)
        time.sleep(0.1)
        away(1)
        os.setsid()


def frozen(path: str) -> None:
    """Stops itself after a few beats, and goes on when somebody continues it."""
    os.setsid()
    for _ in range(5):
        pulse(path)
        time.sleep(PULSE)
    os.kill(os.getpid(), signal.SIGSTOP)
    beat(path)


def twins(path: str) -> None:
    """Two sessions that watch one another; whichever dies is made anew by the other, a few times."""
    stubborn_signals()
    os.setpgid(0, 0)
    for _ in range(6):
        twin = os.fork()
        if twin == 0:
            os.setsid()
            elder = os.getppid()
            while living() and os.getppid() == elder:
                pulse(path)
                time.sleep(PULSE)
            continue
        os.waitpid(twin, 0)


def stubborn_signals() -> None:
    """Ignores what `stubborn` ignores, without beating."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def last_will(path: str) -> None:
    """Answers SIGTERM, a second later, with one more effect."""

    def write(_number: int, _frame: object) -> NoReturn:
        time.sleep(1)
        pulse(path + ".late")
        os._exit(0)

    signal.signal(signal.SIGTERM, write)
    beat(path)


def crowd(path: str) -> None:
    """Forty children, each in a session of its own."""
    for _ in range(40):
        if os.fork() == 0:
            os.setsid()
            while living():
                time.sleep(0.5)
            os._exit(0)
    beat(path)


WAYS: dict[str, Callable[[str], None]] = {
    way.__name__: way
    for way in (beat, pulse, twice_forked, daemon, deaf, stubborn, disguised, relay, frozen, twins, last_will, crowd)
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](sys.argv[2])
