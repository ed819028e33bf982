"""Commands whose output goes to a program or a file."""

from __future__ import annotations

import argparse

from checkpoints.clock import SystemClock
from graphs.cli import dispatch
from graphs.cli.face import JsonLines, PlainText

EXPLAIN = frozenset({"demo", "doctor", "graph"})
"""Commands whose output is for reading: they write text unless --json asks otherwise."""


def perform(args: argparse.Namespace) -> int:
    """Performs the command and gives its exit status."""
    plain = args.command in EXPLAIN and not args.json
    return dispatch.perform(args, PlainText(SystemClock()) if plain else JsonLines(SystemClock()))
