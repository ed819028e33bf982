"""Commands whose standard output is a terminal."""

from __future__ import annotations

import argparse

from checkpoints.clock import SystemClock
from graphs.cli import dispatch
from graphs.cli.terminal import Terminal


def perform(args: argparse.Namespace) -> int:
    """Performs the command and gives its exit status."""
    return dispatch.perform(args, Terminal(SystemClock(), color=not args.no_color))
