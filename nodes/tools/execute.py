"""The shell tool: a command in the workspace, run by the native subgraph inside one scope."""

from __future__ import annotations

import shutil
from typing import Annotated, Literal

from pydantic import Field

from nodes.processes.output import Output
from nodes.processes.registry import Background
from nodes.processes.verdict import Reason, Verdict
from nodes.tools.tool import Arguments, Effect, Tool, ToolResult

DEFAULT_TIMEOUT = 120.0
MAX_TIMEOUT = 86_400.0

SHELL = shutil.which("bash") or "/bin/sh"
"""bash, whose grammar the policy judges, or the system's shell without it. Looked up once, since that blocks."""


class Execute(Arguments):
    """Arguments of execute."""

    command: Annotated[str, Field(min_length=1, max_length=200_000, description="A bash command line.")]
    timeout: Annotated[float, Field(gt=0, le=MAX_TIMEOUT, description="Seconds after which it is killed.")] = DEFAULT_TIMEOUT
    background: Annotated[
        bool, Field(description="Return at once with a name for process_output and process_stop; no timeout applies.")
    ] = False
    keep: Annotated[
        Literal["run", "session"],
        Field(description="What ends a background command: the end of this run, or that of the sandbox session."),
    ] = "run"


def execute_tool() -> Tool:
    """The tool. It has no `run`: the native subgraph does the work."""
    return Tool(
        name="execute",
        description=(
            "Run a bash command in the workspace folder and read its output. Standard input is empty. Whatever the command "
            "leaves running is killed when it ends."
        ),
        arguments=Execute,
        effect=Effect.OUTSIDE,
        run=None,
        confined=True,
    )


def shell_argv(command: str) -> tuple[str, ...]:
    """The program that reads the command line."""
    return (SHELL, "-c", command)


NO_SESSION = "This run works in no sandbox session, so a command cannot be kept for one. It did not start."


def started_result(made: Background) -> ToolResult:
    """What the model reads about a command that goes on in the background."""
    return ToolResult(
        content=f"[started in the background as {made.name}; read it with process_output, end it with process_stop]",
        details={"background": made.name, "title": made.scope.title},
    )


def result_of(verdict: Verdict, output: Output, timeout: float | None, artifact: str = "") -> ToolResult:
    """What the model reads about a command that has ended. `artifact` is the digest of its full output, if that was kept."""
    text = output.text.rstrip("\n")
    note = _ending(verdict, timeout)
    if verdict.leftovers:
        note += f" {verdict.leftovers} process(es) that it had left running were killed."
    if artifact:
        whole = "full" if output.spilled_bytes == output.total_bytes else f"first {output.spilled_bytes} bytes of the"
        note += f" The {whole} output is kept; read_output with name={artifact} pages through it."
    if not verdict.contained:
        note += " CONTAINMENT LOST: processes of this command may still be running."
    content = f"{text}\n[{note}]" if text else f"[{note}]"
    failed = verdict.reason is not Reason.EXIT or verdict.exit_code != 0
    details = verdict.record() | {"artifact": artifact}
    return ToolResult(content=content, is_error=failed, details=details)


def _ending(verdict: Verdict, timeout: float | None) -> str:
    match verdict.reason:
        case Reason.EXIT:
            return f"exit code {verdict.exit_code}."
        case Reason.TIMEOUT:
            return f"killed after its timeout of {timeout:g} s." if timeout else "killed at the run's deadline."
        case Reason.OUTPUT_LIMIT:
            return "killed because it wrote too much."
        case Reason.CANCEL | Reason.OWNER_ENDED:
            return "cancelled: killed before it had ended, so its work may be half done."
        case Reason.LOST:
            return "its guard vanished, so how it ended is not known."
        case _:
            return f"ended: {verdict.reason}."
