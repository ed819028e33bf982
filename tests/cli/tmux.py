"""A real terminal: tmux with a shell of one command in it, its keys and its screen."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.cli.command import Checkrein

GUARD_SECONDS = 45.0
LOOK = 0.05


class Tmux:
    """One terminal of 100 columns and 50 lines. Close it. Skips the test, and says so, on a machine without tmux."""

    def __init__(self, checkrein: Checkrein) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("tmux is not installed here, so nothing was shown on a real terminal")
        self._socket = str(checkrein.home.parent / "tmux")
        variables = [word for name, value in checkrein.environment.items() for word in ("-e", f"{name}={value}")]
        place = ("-x", "100", "-y", "50", "-c", str(checkrein.workspace))
        shell = (sys.executable, "-m", "tests.cli.warm_shell")
        self._tmux("-f", "/dev/null", "new-session", "-d", *place, *variables, shlex.join(shell))
        self._tmux("set-option", "-g", "history-limit", "5000")
        self.wait("ready>")

    def close(self) -> None:
        self._tmux("kill-server")

    def command(self, *lines: str) -> None:
        """Types a command on an empty screen, and at once whatever follows it."""
        self._tmux("send-keys", "-R")
        self._tmux("clear-history")
        self._tmux("send-keys", "-l", "--", "".join(f"{line}\n" for line in lines))

    def type(self, *keys: str) -> None:
        """Presses keys by tmux's names (`Enter`, `C-c`); other text is typed as it is."""
        for key in keys:
            named = key in ("Enter", "C-c", "C-d", "Escape", "Up")
            self._tmux("send-keys", *(() if named else ("-l",)), "--", key)

    def wait(self, seen: str | Callable[[str], bool]) -> str:
        """Waits until the screen, with what has scrolled away, shows something."""
        holds = seen if callable(seen) else lambda text: seen in text
        deadline = time.monotonic() + GUARD_SECONDS
        while time.monotonic() < deadline:
            text = self.screen()
            if holds(text):
                return text
            time.sleep(LOOK)
        raise AssertionError(f"the screen never showed {seen}:\n{self.screen()}")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], capture_output=True, text=True, timeout=GUARD_SECONDS, check=True
        )
        return done.stdout
