"""What a model may do with the background commands that it started: read their output, stop them, list them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from checkpoints.clock import Clock
from nodes.processes.registry import Background, Registry, UnknownScopeError
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult

Name = Annotated[str, Field(min_length=1, max_length=20, description="Name of the process, as `execute` gave it.")]


class ProcessName(Arguments):
    """Arguments of process_output and process_stop."""

    name: Name


class NoArguments(Arguments):
    """Arguments of process_list: none."""


def process_tools(registry: Registry, clock: Clock) -> tuple[Tool, ...]:
    """The tools. None of them asks: they touch only what an approved call of the same owner started."""

    async def output(arguments: ProcessName, site: CallSite) -> ToolResult:
        try:
            found = find(registry, site, arguments.name)
        except UnknownScopeError as error:
            return ToolResult(content=f"{error} {error.hint}", is_error=True)
        record = found.record(clock.monotonic())
        text = found.scope.output.text.rstrip("\n")
        return ToolResult(content=f"{text}\n[{_line(record)}]" if text else f"[{_line(record)}]", details=record)

    async def stop(arguments: ProcessName, site: CallSite) -> ToolResult:
        try:
            found = find(registry, site, arguments.name)
        except UnknownScopeError as error:
            return ToolResult(content=f"{error} {error.hint}", is_error=True)
        verdict = await found.scope.stop()
        lost = "" if verdict.empty else " CONTAINMENT LOST: processes of it may still be running."
        return ToolResult(
            content=f"[{_line(found.record(clock.monotonic()))}]{lost}",
            is_error=not verdict.empty,
            details=verdict.record(),
        )

    async def listing(_: NoArguments, site: CallSite) -> ToolResult:
        records = [found.record(clock.monotonic()) for owner in owners(site) for found in registry.list(owner)]
        lines = "\n".join(_line(record) for record in records) or "There are no background processes."
        return ToolResult(content=lines, details={"processes": records})

    return (
        Tool(
            name="process_output",
            description="Read what a background process has written so far, and whether it still runs.",
            arguments=ProcessName,
            effect=Effect.NONE,
            run=output,
        ),
        Tool(
            name="process_stop",
            description="Kill a background process and everything that it started.",
            arguments=ProcessName,
            effect=Effect.NONE,
            run=stop,
        ),
        Tool(
            name="process_list",
            description="List the background processes.",
            arguments=NoArguments,
            effect=Effect.NONE,
            run=listing,
        ),
    )


def owners(site: CallSite) -> tuple[str, ...]:
    """Whose processes a call may touch: its run's and its session's."""
    return (site.owner, site.session) if site.session else (site.owner,)


def find(registry: Registry, site: CallSite, name: str) -> Background:
    """A background process by its name.

    Raises:
        UnknownScopeError: Neither the run nor its session has it.
    """
    error: UnknownScopeError | None = None
    for owner in owners(site):
        try:
            return registry.get(owner, name)
        except UnknownScopeError as unknown:
            error = unknown
    assert error is not None
    raise error


def _line(record: dict[str, Any]) -> str:
    code = f", exit code {record['exit_code']}" if record["exit_code"] is not None else ""
    return f"{record['name']}: {record['title']} ({record['state']}{code}, {record['seconds']} s)"
