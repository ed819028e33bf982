"""The full outputs of commands that wrote more than a result holds, and how a model reads on in one.

A full output is an artifact of its thread: a file named by its content, out of the commands' own reach, that goes with the
thread.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from checkpoints.artifacts import Artifacts
from nodes.processes.output import first_character, shown, whole_characters
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult

PAGE = 16_000
"""Bytes of one page, about half of what a command's own result shows."""


class ReadOutput(Arguments):
    """Arguments of read_output."""

    name: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="Name of the output, as the command's result gave it.")]
    start: Annotated[int, Field(ge=0, description="Byte to begin with.")] = 0


def output_tool(artifacts: Artifacts) -> Tool:
    """The tool. It asks nobody: it reads what a command of the same thread has written, and nothing else."""

    async def read(arguments: ReadOutput, site: CallSite) -> ToolResult:
        name, start = arguments.name, arguments.start
        if not await artifacts.belongs(name, site.thread_id):
            return ToolResult(content=f"There is no output {name!r} in this thread.", is_error=True)
        data = await artifacts.read(name, offset=start, limit=PAGE)
        size = await artifacts.size(name)
        begin = start + (first_character(data) if start else 0)
        end = start + (len(data) if start + len(data) == size else whole_characters(data))
        text = shown(data[begin - start : max(begin, end) - start])
        more = f"; read on with start={end}" if end < size else ""
        return ToolResult(content=f"{text}\n[bytes {begin} to {end} of {size}{more}]", details={"end": end, "size": size})

    return Tool(
        name="read_output",
        description="Read a page of the full output of a command whose result left some of it out.",
        arguments=ReadOutput,
        effect=Effect.NONE,
        run=read,
    )
