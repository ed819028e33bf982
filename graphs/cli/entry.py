"""From the words of a command line to an exit status."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from graphs.cli.arguments import CommandLineError
from graphs.cli.exits import Exit
from graphs.cli.jsonlines import error_record, mute, write_line
from graphs.cli.parser import parse

_TERMINAL, _PIPE = "graphs.cli.on_terminal", "graphs.cli.on_pipe"


def main(words: Sequence[str] | None = None) -> int:
    """Performs one command and gives its exit status (see `exits.Exit`).

    Args:
        words: What follows the command's name; the process's own arguments when None.

    Raises:
        SystemExit: After help or version was printed.
    """
    _complete_streams()
    given = sys.argv[1:] if words is None else list(words)
    try:
        chosen = parse(given)
        # The command line's one deferred import. It costs some hundred times what parsing costs, so help, version and a
        # mistyped option answer without it; and output for programs does without a terminal's renderer.
        module = importlib.import_module(_TERMINAL if sys.stdout.isatty() and not chosen.json else _PIPE)
        status: int = module.perform(chosen)
    except CommandLineError as error:
        return _refuse(error, as_json="--json" in given)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # `checkrein list | head -1`: no error.
        mute()
        return Exit.COMPLETED
    return status


def _refuse(error: CommandLineError, *, as_json: bool) -> int:
    sys.stderr.write(f"checkrein: {error}\n  {error.hint}\n")
    if as_json or not sys.stdout.isatty():
        write_line(error_record(error.record(), Exit.USAGE))
    return Exit.USAGE


def _complete_streams() -> None:
    """Puts the null device where the caller closed a standard stream (`>&-`), which Python shows as None."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR if number else os.O_RDONLY)
            setattr(sys, name, os.fdopen(null, "w" if number else "r", encoding="utf-8"))
