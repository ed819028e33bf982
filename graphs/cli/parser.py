"""The command line's grammar. Nothing but argparse: help must answer at the speed of the bare interpreter."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from graphs.cli.arguments import (
    CommandLineError,
    Commands,
    Parser,
    age,
    count,
    dollars,
    large_count,
    long_seconds,
    port,
    position,
    seconds,
)
from graphs.cli.exits import table

__all__ = ["VERSION", "CommandLineError", "parse"]

VERSION = "0.1.0"

_ABOUT = """\
Runs an agent whose dangerous steps wait for a person, whose approvals resume
in any process, and whose cancel leaves no process behind."""

_EPILOG = f"""\
On a terminal a run is shown live and asks for approvals. Off a terminal, or
with --json, every line of standard output is one JSON object; the last one is
the run's terminal event or an error record. At the prompt only the words
`approve` and `yes` approve; `approve session` and `approve always` also let the
same call run unasked from then on. `y`, Enter, end of input and Ctrl-C approve
nothing.

exit status:
{table()}

Start with `checkrein demo`: it needs no key and no endpoint."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Reads the words after `checkrein`. `--help` and `--version` print and exit.

    Raises:
        CommandLineError: They make no command.
        SystemExit: After help or version was printed.
    """
    return _command_line().parse_args(words)


def _command_line() -> Parser:
    parser = Parser(prog="checkrein", description=_ABOUT, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"checkrein {VERSION}")
    _add_globals(parser, suppress=False)
    commands: Commands[Parser] = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Subparser
    )
    for add in (_add_runs, _add_decisions, _add_views, _add_endings, _add_keeping, _add_tools):
        add(commands)
    return parser


class _Subparser(Parser):
    """A command's own grammar; the global options may stand in it too."""

    def __init__(self, *, prog: str, description: str, parents: Sequence[Parser]) -> None:
        common = Parser(prog="")
        _add_globals(common, suppress=True)
        super().__init__(prog=prog, description=description, parents=[*parents, common])


def _command(commands: Commands[Parser], name: str, what: str, *parents: Parser) -> Parser:
    return commands.add_parser(name, help=what, description=f"{what[:1].upper()}{what[1:]}.", parents=parents)


def _add_globals(parser: Parser, *, suppress: bool) -> None:
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


def _model_options() -> Parser:
    options = Parser(prog="")
    options.add_argument("--model", metavar="NAME", default=None, help="model to answer with (default: CHECKREIN_MODEL)")
    options.add_argument(
        "--base-url", metavar="URL", default=None, help="OpenAI-compatible endpoint (default: CHECKREIN_BASE_URL)"
    )
    options.add_argument(
        "--script", metavar="FILE", default="", help="play this model script on loopback instead of an endpoint"
    )
    return options


def _limit_options() -> Parser:
    options = Parser(prog="")
    options.add_argument("--timeout", metavar="SECONDS", type=seconds, default=None, help="time for one run (default: 3600)")
    options.add_argument("--max-turns", metavar="N", type=count, default=None, help="model calls for one task (default: 50)")
    options.add_argument(
        "--max-tool-calls", metavar="N", type=count, default=None, help="tool calls for one task (default: 200)"
    )
    options.add_argument("--max-tokens", metavar="N", type=large_count, default=None, help="tokens for one task")
    options.add_argument("--max-cost", metavar="USD", type=dollars, default=None, help="US dollars for one task")
    options.add_argument(
        "--approval-timeout",
        metavar="SECONDS",
        type=long_seconds,
        default=None,
        help="time after which an unanswered approval expires (default: never)",
    )
    options.add_argument("--instructions", metavar="TEXT", default=None, help="added to the system prompt")
    options.add_argument(
        "--record", metavar="FILE", default="", help="keep the model's part in this new file, as a script, secrets removed"
    )
    options.add_argument("--no-prompt", action="store_true", help="never ask here: leave approvals for `checkrein approve`")
    return options


def _task_options() -> Parser:
    options = Parser(prog="")
    options.add_argument(
        "--review-mode",
        choices=("manual", "auto"),
        default=None,
        help="manual: every tool with an effect asks (default); auto: only what the policy marks",
    )
    options.add_argument("--workspace", metavar="FOLDER", default="", help="folder that the tools act in (default: this one)")
    options.add_argument(
        "--sandbox",
        metavar="KEY",
        default=None,
        help="use the sandbox session of this key: its workspace is kept for the next run (default folder: one of its own)",
    )
    options.add_argument("--thread", metavar="ID", default="", help="go on with this thread instead of a new one")
    options.add_argument(
        "--finite", action="store_true", default=None, help="nobody stays to answer: what would ask is denied at once"
    )
    options.add_argument(
        "--unattended",
        action="store_true",
        default=None,
        help="with --finite: nobody is there and you answer for what runs; the floor and deny rules hold",
    )
    options.add_argument("--yolo", action="store_true", default=None, help="bypass approvals; the floor and deny rules hold")
    return options


def _add_runs(commands: Commands[Parser]) -> None:
    parents = (_model_options(), _limit_options(), _task_options())
    run = _command(commands, "run", "give the agent a task and show the run", *parents)
    run.add_argument("task", metavar="TASK", help="what to do; `-` reads it from standard input")
    record = _command(commands, "record", "run a task and keep the model's part as a script that can be replayed", *parents)
    record.add_argument("file", metavar="FILE", help="the new script file, as with --record")
    record.add_argument("task", metavar="TASK", help="what to do; `-` reads it from standard input")
    shared = (_model_options(), _limit_options())
    _add_thread(_command(commands, "resume", "go on with a thread from its last checkpoint, without new input", *shared))
    recover = _command(commands, "recover", "go on with the runs whose process died, and show them")
    recover.add_argument("--settle", action="store_true", help="end them instead, each as its first recorded cause says")


def _add_decisions(commands: Commands[Parser]) -> None:
    shared = (_model_options(), _limit_options())
    approve = _command(commands, "approve", "let waiting calls run, and go on with their threads", *shared)
    _add_threads(approve)
    approve.add_argument(
        "--call",
        metavar="ID",
        action="append",
        default=[],
        dest="calls",
        help="a call that is meant, of one thread; may be repeated (default: all that wait)",
    )
    approve.add_argument(
        "--remember",
        choices=("session", "always"),
        default=None,
        help="let the same calls run unasked from now on: in their thread, or everywhere",
    )
    reject = _command(commands, "reject", "refuse what waits, and go on with its threads", *shared)
    _add_threads(reject)
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


def _add_views(commands: Commands[Parser]) -> None:
    listing = _command(commands, "list", "list threads, last touched first")
    listing.add_argument("--limit", metavar="N", type=count, default=50, help="threads to list at most (default: 50)")
    _command(commands, "inbox", "list everything that waits for a decision: since when, who asked, what")
    _add_thread(_command(commands, "show", "show a thread: its conversation, its runs and what waits"))
    follow = _command(commands, "follow", "show the events of a run, from its start to its end")
    _add_thread(follow)
    follow.add_argument("--after", metavar="SEQ", type=position, default=0, help="leave out events up to this number")
    _command(commands, "graph", "print the agent graph as Mermaid text")


def _add_endings(commands: Commands[Parser]) -> None:
    cancel = _command(commands, "cancel", "cancel a live run, or withdraw what waits, wherever it runs")
    _add_thread(cancel)
    cancel.add_argument("--reason", metavar="TEXT", default="cancelled from the command line", help="kept with the run")
    _add_thread(_command(commands, "delete", "delete a thread with everything that is stored of it"))


def _add_keeping(commands: Commands[Parser]) -> None:
    store = _group(commands, "store", "look after the store: its size, what may go, threads as files")
    stats = _command(store, "stats", "show how large the store is, by kind and by thread")
    stats.add_argument("--largest", metavar="N", type=count, default=10, help="threads to show (default: 10)")
    prune = _command(store, "prune", "delete threads that nothing needs, by age and by count")
    prune.add_argument("--older-than", metavar="AGE", type=age, default=None, help="not touched for 90m, 12h, 30d, 2w")
    prune.add_argument("--keep", metavar="N", type=position, default=None, help="all but the N that were touched last")
    prune.add_argument("--thin", action="store_true", help="also drop checkpoints that their threads can do without")
    prune.add_argument("--compact", action="store_true", help="also give the space back to the file system")
    export = _command(store, "export", "write a thread to a file")
    _add_thread(export)
    export.add_argument("file", metavar="FILE", help="the file to write; it holds what the thread holds")
    imported = _command(store, "import", "store a thread that was exported; a damaged file is refused whole")
    imported.add_argument("file", metavar="FILE", help="the exported file")
    imported.add_argument("--as", metavar="ID", default="", dest="thread", help="another id for the thread")
    rules = _group(commands, "rules", "standing permissions that approvals gave")
    _command(rules, "list", "list the rules in force, oldest first")
    _add_names(_command(rules, "revoke", "end rules: their calls ask again"), "RULE", "a rule")
    sessions = _group(commands, "sessions", "sandbox sessions: workspaces that are reused between runs")
    _command(sessions, "list", "list the sessions, last used first")
    _add_names(
        _command(sessions, "delete", "end what runs in sessions, forget them and remove their own folders"), "ID", "a session"
    )


def _group(commands: Commands[Parser], name: str, what: str) -> Commands[Parser]:
    group = _command(commands, name, what)
    actions: Commands[Parser] = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    return actions


def _add_names(parser: Parser, metavar: str, what: str) -> None:
    parser.add_argument("names", metavar=metavar, nargs="+", help=f"{what}; the beginning of its id is enough")


def _add_tools(commands: Commands[Parser]) -> None:
    demo = _command(commands, "demo", "show the main job on this machine, without a key: run, approve, cancel")
    demo.add_argument("--no-prompt", action="store_true", help="do not ask here: let a second process approve")
    doctor = _command(commands, "doctor", "check what Checkrein needs on this machine, and say what to do", _model_options())
    doctor.add_argument("--workspace", metavar="FOLDER", default="", help="folder that the tools would act in")
    model = _command(commands, "model", "serve a model script as an OpenAI-compatible endpoint on loopback")
    model.add_argument("file", metavar="FILE", help="the script, a TOML file")
    model.add_argument("--port", metavar="N", type=port, default=0, help="port on 127.0.0.1 (default: a free one)")
    model.add_argument("--strict", action="store_true", help="answer 400 to histories that real providers refuse")
    model.add_argument("--requests", metavar="FILE", default="", help="append each request to this file as a JSON line")


def _add_thread(parser: Parser) -> None:
    parser.add_argument("thread", metavar="THREAD", help="thread or run; the beginning of its id is enough")


def _add_threads(parser: Parser) -> None:
    parser.add_argument("threads", metavar="THREAD", nargs="+", help="threads or runs; the beginning of an id is enough")
