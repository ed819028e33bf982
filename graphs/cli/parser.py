"""The command line's grammar. Nothing but argparse: help must answer at the speed of the bare interpreter."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from checkpoints.errors import UsageError
from graphs.cli.exits import table

VERSION = "0.1.0"

_ABOUT = """\
Runs an agent whose dangerous steps wait for a person, whose approvals resume
in any process, and whose cancel leaves no process behind."""

_EPILOG = f"""\
On a terminal a run is shown live and asks for approvals. Off a terminal, or
with --json, every line of standard output is one JSON object; the last one is
the run's terminal event or an error record. Only the words `approve` and `yes`
approve; `y`, Enter, end of input and Ctrl-C do not.

exit status:
{table()}

Start with `checkrein demo`: it needs no key and no endpoint."""


class CommandLineError(UsageError):
    """The words after `checkrein` do not make a command."""

    code = "command_line"

    def __init__(self, program: str, problem: str) -> None:
        self.program = program
        self.problem = problem
        self.hint = f"`{program} --help` shows what can be said."
        super().__init__(f"{problem[:1].upper()}{problem[1:]}.")


class _Parser(argparse.ArgumentParser):
    """Raises instead of writing and exiting, so that an error is shown like every other one. Options are never guessed."""

    def __init__(self, *, prog: str, description: str = "", epilog: str = "", parents: Sequence[_Parser] = ()) -> None:
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
        raise CommandLineError(self.prog, message.rstrip("."))


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the words after `checkrein`. `--help` and `--version` print and exit.

    Raises:
        CommandLineError: They make no command.
        SystemExit: After help or version was printed.
    """
    return _command_line().parse_args(words)


def _command_line() -> _Parser:
    parser = _Parser(prog="checkrein", description=_ABOUT, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"checkrein {VERSION}")
    _add_globals(parser, suppress=False)
    commands: Commands[_Parser] = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Subparser
    )
    for add in (_add_run, _add_decisions, _add_views, _add_endings, _add_tools):
        add(commands)
    return parser


class _Subparser(_Parser):
    """A command's own grammar; the global options may stand in it too."""

    def __init__(self, *, prog: str, description: str, parents: Sequence[_Parser]) -> None:
        common = _Parser(prog="")
        _add_globals(common, suppress=True)
        super().__init__(prog=prog, description=description, parents=[*parents, common])


Commands = argparse._SubParsersAction  # noqa: SLF001 (argparse has no public name for what add_subparsers gives)


def _command(commands: Commands[_Parser], name: str, what: str, *parents: _Parser) -> _Parser:
    return commands.add_parser(name, help=what, description=f"{what[:1].upper()}{what[1:]}.", parents=parents)


def _add_globals(parser: _Parser, *, suppress: bool) -> None:
    """Options that may stand before and after the command; after it, without a default that would undo the first."""

    def default(value: object) -> object:
        return argparse.SUPPRESS if suppress else value

    parser.add_argument(
        "--store",
        metavar="PATH|URL",
        default=default(""),
        help="the store to use (default: CHECKREIN_STORE, else one file in the user's state folder)",
    )
    parser.add_argument(
        "--json", action="store_true", default=default(False), help="one JSON object a line, also on a terminal"
    )
    parser.add_argument("--no-color", action="store_true", default=default(False), help="no colours (NO_COLOR works too)")
    parser.add_argument("--debug", action="store_true", default=default(False), help="show tracebacks of unexpected errors")


def _model_options() -> _Parser:
    options = _Parser(prog="")
    options.add_argument("--model", metavar="NAME", default=None, help="model to answer with (default: CHECKREIN_MODEL)")
    options.add_argument(
        "--base-url", metavar="URL", default=None, help="OpenAI-compatible endpoint (default: CHECKREIN_BASE_URL)"
    )
    options.add_argument(
        "--script", metavar="FILE", default="", help="play this model script on loopback instead of an endpoint"
    )
    return options


def _limit_options() -> _Parser:
    options = _Parser(prog="")
    options.add_argument("--timeout", metavar="SECONDS", type=_seconds, default=None, help="time for one run (default: 3600)")
    options.add_argument("--max-turns", metavar="N", type=_count, default=None, help="model calls for one task (default: 50)")
    options.add_argument(
        "--max-tool-calls", metavar="N", type=_count, default=None, help="tool calls for one task (default: 200)"
    )
    options.add_argument("--instructions", metavar="TEXT", default=None, help="added to the system prompt")
    options.add_argument("--no-prompt", action="store_true", help="never ask here: leave approvals for `checkrein approve`")
    return options


def _add_run(commands: Commands[_Parser]) -> None:
    run = _command(commands, "run", "give the agent a task and show the run", _model_options(), _limit_options())
    run.add_argument("task", metavar="TASK", help="what to do; `-` reads it from standard input")
    run.add_argument(
        "--review-mode",
        choices=("manual", "auto"),
        default=None,
        help="manual: every tool with an effect asks (default); auto: only what the policy marks",
    )
    run.add_argument("--workspace", metavar="FOLDER", default="", help="folder that the tools act in (default: this one)")
    run.add_argument("--thread", metavar="ID", default="", help="go on with this thread instead of a new one")


def _add_decisions(commands: Commands[_Parser]) -> None:
    shared = (_model_options(), _limit_options())
    approve = _command(commands, "approve", "let a waiting call run, and go on with its thread", *shared)
    _add_thread(approve)
    approve.add_argument("calls", metavar="CALL", nargs="*", help="ids of the calls meant; all that wait, when none is named")
    reject = _command(commands, "reject", "refuse what waits, and go on with its thread", *shared)
    _add_thread(reject)
    reject.add_argument("--reason", metavar="TEXT", default="", help="what the model is told")
    edit = _command(commands, "edit", "let a waiting call run with other arguments", *shared)
    _add_thread(edit)
    new = edit.add_mutually_exclusive_group(required=True)
    new.add_argument("--args", metavar="JSON", default=None, help="all arguments as one JSON object")
    new.add_argument("--command", metavar="TEXT", dest="command_text", default=None, help="only another command")
    respond = _command(commands, "respond", "answer a waiting call yourself: it does not run", *shared)
    _add_thread(respond)
    respond.add_argument("--message", metavar="TEXT", required=True, help="what the model takes as the call's result")
    decide = _command(commands, "decide", "be asked again about what waits, or decide about each call in its own way", *shared)
    _add_thread(decide)
    decide.add_argument(
        "--decisions",
        metavar="JSON|@FILE|-",
        default=None,
        help='a list in the order of the calls, e.g. [{"type": "approve"}, {"type": "reject", "message": "no"}]; '
        "a terminal asks when it is not given",
    )


def _add_views(commands: Commands[_Parser]) -> None:
    listing = _command(commands, "list", "list threads, last touched first")
    listing.add_argument("--limit", metavar="N", type=_count, default=50, help="threads to list at most (default: 50)")
    _command(commands, "inbox", "list everything that waits for a decision")
    _add_thread(_command(commands, "show", "show a thread: its conversation, its runs and what waits"))
    follow = _command(commands, "follow", "show the events of a run, from its start to its end")
    _add_thread(follow)
    follow.add_argument("--after", metavar="SEQ", type=_position, default=0, help="leave out events up to this number")
    _command(commands, "graph", "print the agent graph as Mermaid text")


def _add_endings(commands: Commands[_Parser]) -> None:
    cancel = _command(commands, "cancel", "cancel a live run, or withdraw what waits, wherever it runs")
    _add_thread(cancel)
    cancel.add_argument("--reason", metavar="TEXT", default="cancelled from the command line", help="kept with the run")
    _add_thread(_command(commands, "delete", "delete a thread with everything that is stored of it"))


def _add_tools(commands: Commands[_Parser]) -> None:
    demo = _command(commands, "demo", "show the main job on this machine, without a key: run, approve, cancel")
    demo.add_argument("--no-prompt", action="store_true", help="do not ask here: let a second process approve")
    doctor = _command(commands, "doctor", "check what Checkrein needs on this machine, and say what to do", _model_options())
    doctor.add_argument("--workspace", metavar="FOLDER", default="", help="folder that the tools would act in")
    model = _command(commands, "model", "serve a model script as an OpenAI-compatible endpoint on loopback")
    model.add_argument("file", metavar="FILE", help="the script, a TOML file")
    model.add_argument("--port", metavar="N", type=_port, default=0, help="port on 127.0.0.1 (default: a free one)")
    model.add_argument("--strict", action="store_true", help="answer 400 to histories that real providers refuse")
    model.add_argument("--requests", metavar="FILE", default="", help="append each request to this file as a JSON line")


def _add_thread(parser: _Parser) -> None:
    parser.add_argument("thread", metavar="THREAD", help="thread or run; the beginning of its id is enough")


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


_seconds = _number(float, 0.001, 7 * 86400, "a number of seconds between 0.001 and 604800")
_count = _number(int, 1, 10_000, "a whole number between 1 and 10000")
_position = _number(int, 0, 2**53, "a whole number from 0 on")
_port = _number(int, 0, 65_535, "a port number (0 to 65535)")
