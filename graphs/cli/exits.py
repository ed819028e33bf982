"""What the command's exit status means. One table; `--help` prints it."""

from __future__ import annotations

from enum import IntEnum

from checkpoints.errors import CheckreinError, ConflictError, UsageError


class Exit(IntEnum):
    """The exit statuses. Every one means one thing."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    AWAITING_INPUT = 3
    CANCELLED = 4
    TIMEOUT = 5
    CONFLICT = 6
    LIMIT_REACHED = 7
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    Exit.COMPLETED: "the run completed, or the command did what was asked",
    Exit.FAILED: "the run failed, or something went wrong that no other number names",
    Exit.USAGE: "the call cannot be meant: an unknown option, thread or run, an answer that does not fit",
    Exit.AWAITING_INPUT: "the run waits for a decision (also after Enter, end of input or Ctrl-C at the prompt)",
    Exit.CANCELLED: "the run was cancelled, by Ctrl-C, a signal or another process",
    Exit.TIMEOUT: "the run's time was over",
    Exit.CONFLICT: "somebody else was first: the thread is busy, or nothing waits for this decision (any more)",
    Exit.LIMIT_REACHED: "the run stopped at its limit of turns or tool calls",
    Exit.INTERRUPTED: "Ctrl-C while there was no run of this command to cancel",
    Exit.TERMINATED: "SIGTERM or SIGHUP while there was no run of this command to cancel",
}

_OUTCOMES = {
    "completed": Exit.COMPLETED,
    "failed": Exit.FAILED,
    "awaiting_input": Exit.AWAITING_INPUT,
    "cancelled": Exit.CANCELLED,
    "timeout": Exit.TIMEOUT,
}

_TOO_LATE = frozenset({"run_lost", "nothing_waits"})
"""Codes of errors that are conflicts to a script, though their classes say otherwise: a run that another process took over, and
a decision that came after somebody else's."""


def table() -> str:
    """The table as text, for help."""
    return "\n".join(f"  {int(code):>3}  {meaning}" for code, meaning in MEANINGS.items())


def of_outcome(outcome: str, *, at_limit: bool = False) -> Exit:
    """The status for a run's outcome.

    Args:
        outcome: The run's outcome.
        at_limit: True when a completed run stopped at a limit instead of finishing its task.
    """
    if at_limit and outcome == "completed":
        return Exit.LIMIT_REACHED
    return _OUTCOMES[outcome]


def of_error(error: CheckreinError) -> Exit:
    """The status for an error that ended the command."""
    if isinstance(error, ConflictError) or error.code in _TOO_LATE:
        return Exit.CONFLICT
    return Exit.USAGE if isinstance(error, UsageError) else Exit.FAILED
