"""From a parsed command line to the command, and from whatever it raises to an exit status."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from checkpoints.clock import SystemClock
from checkpoints.errors import CheckreinError
from graphs.cli.commands import checking, deciding, demonstrating, endings, keeping, running, serving, views
from graphs.cli.desk import Desk
from graphs.cli.exits import Exit, of_error
from graphs.cli.face import Face, complain
from graphs.cli.stops import Stops
from graphs.settings import read_settings
from nodes.display import escape_line

COMMANDS: Mapping[str, Callable[[Desk], Awaitable[Exit]]] = {
    "run": running.run,
    "record": running.record,
    "resume": running.resume,
    "recover": running.recover,
    "approve": deciding.approve,
    "reject": deciding.reject,
    "edit": deciding.edit,
    "respond": deciding.respond,
    "decide": deciding.decide,
    "list": views.list_threads,
    "inbox": views.inbox,
    "show": views.show_thread,
    "follow": views.follow,
    "graph": views.graph,
    "cancel": endings.cancel,
    "delete": endings.delete,
    "store stats": keeping.stats,
    "store prune": keeping.prune,
    "store export": keeping.export,
    "store import": keeping.imported,
    "rules list": keeping.list_rules,
    "rules revoke": keeping.revoke,
    "sessions list": keeping.list_sessions,
    "sessions delete": keeping.delete_sessions,
    "demo": demonstrating.demo,
    "doctor": checking.doctor,
    "model": serving.model,
}

LOG = "errors.log"


class InterruptedBySignalError(CheckreinError):
    """A signal ended the command while no run of its own was there to cancel."""

    code = "interrupted"
    hint = "Runs of other processes were not touched by it."

    def __init__(self, status: Exit) -> None:
        self.status = status
        super().__init__("The command was ended by a signal.")


def perform(args: argparse.Namespace, face: Face) -> int:
    """Performs the command and gives the exit status. Errors are told on standard error, never as a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal's character set lacks is spelled out, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return asyncio.run(_performed(args, face))
    except InterruptedBySignalError as error:
        complain(error, error.status, as_json=face.reports)
        return error.status
    except CheckreinError as error:
        status = of_error(error)
        complain(error, status, as_json=face.reports)
        return status
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 (the outermost frame: a person gets a sentence, the log gets the traceback)
        complain(_unexpected(error, debug=args.debug), Exit.FAILED, as_json=face.reports)
        return Exit.FAILED


async def _performed(args: argparse.Namespace, face: Face) -> Exit:
    stops = Stops()
    with stops.installed():
        try:
            return await COMMANDS[_named(args)](Desk(args, face, stops))
        except asyncio.CancelledError:
            if stops.status is None:
                raise
            raise InterruptedBySignalError(stops.status) from None


def _named(args: argparse.Namespace) -> str:
    """The command's name, with the action of one that has several."""
    return f"{args.command} {args.action}" if "action" in args else str(args.command)


class UnexpectedError(CheckreinError):
    """A fault of Checkrein itself."""

    code = "internal"

    def __init__(self, error: Exception, where: str) -> None:
        self.hint = where
        super().__init__(f"Something unexpected went wrong: {type(error).__name__}: {escape_line(str(error))[:500]}")


def _unexpected(error: Exception, *, debug: bool) -> UnexpectedError:
    details = "".join(traceback.format_exception(error))
    if debug:
        sys.stderr.write(details)
    try:
        path = _logged(details)
    except OSError as refused:
        return UnexpectedError(error, f"The details could not be logged ({refused.strerror}); --debug shows them.")
    return UnexpectedError(error, f"The details are in {path}; --debug shows them here.")


def _logged(details: str) -> Path:
    """Appends the details to a log that only this user can read."""
    home = read_settings().home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{SystemClock().now().isoformat()} pid {os.getpid()}\n{details}\n")
    return home / LOG
