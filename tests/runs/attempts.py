"""A ledger of attempts at one scene: registered with a limit, each start and result a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMED_OUT = 124
"""What `timeout(1)` gives for a program that it had to end."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended."""

    exit_code: int
    output: str


class Attempts:
    """Runs a command at most `limit` times, and writes down every one.

    The command sees a home and a data folder of its own and nothing of the caller's environment but what Python needs.
    """

    def __init__(self, path: Path, *, limit: int) -> None:
        self._path = path
        self._limit = limit

    def records(self) -> list[dict[str, Any]]:
        """Everything written so far."""
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []

    def run(self, command: list[str], *, timeout: float) -> Attempt:
        """Makes the next attempt; a limit that is used up raises RuntimeError before anything starts."""
        records = self.records()
        used = sum(record["phase"] == "start" for record in records)
        limits = [record["limit"] for record in records if "limit" in record]
        if used >= self._limit:
            raise RuntimeError(f"the limit of {self._limit} attempts is used up")
        if not limits:
            self._write(phase="registered", limit=self._limit, command=command)
        elif limits[-1] != self._limit:
            self._write(phase="limit_raised", limit=self._limit, used=used)
        self._write(phase="start", attempt=used + 1)
        attempt = _attempt(command, timeout)
        log = self._path.with_name(f"attempt-{used + 1}.log")
        log.write_text(attempt.output)
        self._write(
            phase="result",
            attempt=used + 1,
            exit_code=attempt.exit_code,
            log=str(log),
            remaining=self._limit - used - 1,
        )
        return attempt

    def _write(self, **record: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def _attempt(command: list[str], timeout: float) -> Attempt:
    with tempfile.TemporaryDirectory() as home:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "CHECKREIN_HOME": f"{home}/state",
            "CHECKREIN_SCENE": home,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            text = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
            return Attempt(TIMED_OUT, text)
        return Attempt(done.returncode, done.stdout)
