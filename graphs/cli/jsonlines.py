"""Output for programs: one JSON object a line, in ASCII, so that no text inside a string can break a line or a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO


def write_line(value: Mapping[str, Any], to: TextIO | None = None) -> None:
    """Writes one object and a line feed, and flushes.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    stream = to or sys.stdout
    stream.write(json.dumps(value, ensure_ascii=True, separators=(", ", ": ")) + "\n")
    stream.flush()


def error_record(record: Mapping[str, str], exit_status: int) -> dict[str, Any]:
    """The line that ends the output of a command that an error ended."""
    return {"kind": "error", **record, "exit_status": exit_status}


def mute() -> None:
    """From here on nothing that is written to standard output arrives anywhere, at exit either: nobody reads it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
