"""The command `checkrein`. Importing it, and asking it for help, costs no more than argparse."""

from __future__ import annotations

from graphs.cli.entry import main

__all__ = ["main"]
