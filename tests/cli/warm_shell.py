"""A shell of one command, for tests on a terminal: what it needs is imported once, each command is a process forked from here.

The command is the terminal's foreground job, as a shell would have it, so that Ctrl-C reaches it and not the shell.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys

from graphs.cli import main, on_pipe, on_terminal

LOADED = (on_pipe, on_terminal)


def shell() -> None:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    gc.freeze()
    while True:
        sys.stdout.write("ready> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        status = os.waitstatus_to_exitcode(os.waitpid(_started(shlex.split(line)), 0)[1])
        os.tcsetpgrp(0, os.getpgrp())
        sys.stdout.write(f"status={status}\n")


def _started(words: list[str]) -> int:
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        try:
            status = main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
        sys.stdout.flush()
        os._exit(status)
    return child


if __name__ == "__main__":
    shell()
