"""What the command line's grammar is made of: a parser that raises, and the kinds of values that options take."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from checkpoints.errors import UsageError


class CommandLineError(UsageError):
    """The words after `checkrein` do not make a command."""

    code = "command_line"

    def __init__(self, program: str, problem: str) -> None:
        self.program = program
        self.problem = problem
        self.hint = f"`{program} --help` shows what can be said."
        super().__init__(f"{problem[:1].upper()}{problem[1:]}.")


class Parser(argparse.ArgumentParser):
    """Raises instead of writing and exiting, so that an error is shown like every other one. Options are never guessed."""

    def __init__(self, *, prog: str, description: str = "", epilog: str = "", parents: Sequence[Parser] = ()) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            parents=list(parents),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=bool(prog),
        )

    def error(self, message: str) -> NoReturn:
        """Raises CommandLineError."""
        raise CommandLineError(self.prog, message.rstrip("."))


Commands = argparse._SubParsersAction  # noqa: SLF001 (argparse has no public name for what add_subparsers gives)


def _number(kind: Callable[[str], float], lowest: float, highest: float, what: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return read


seconds = _number(float, 0.001, 7 * 86400, "a number of seconds between 0.001 and 604800")
long_seconds = _number(float, 0.001, 365 * 86400, "a number of seconds between 0.001 and 31536000")
count = _number(int, 1, 10_000, "a whole number between 1 and 10000")
large_count = _number(int, 1, 2**53, "a whole number from 1 on")
position = _number(int, 0, 2**53, "a whole number from 0 on")
dollars = _number(float, 0.000001, 1_000_000, "a number of US dollars above 0")
port = _number(int, 0, 65_535, "a port number (0 to 65535)")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d{1,6})([smhdw])")


def age(text: str) -> float:
    """Seconds in an age such as `90m`, `12h`, `30d` or `2w`."""
    found = _AGE.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 90m, 12h, 30d or 2w")
    return float(found[1]) * _UNITS[found[2]]
