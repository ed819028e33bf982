"""The full outputs of commands that wrote more than a result holds: where each lies, and how a model reads on in one."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field

from nodes.processes.output import first_character, shown, whole_characters
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult

PAGE = 16_000
"""Bytes of one page, about half of what a command's own result shows."""


class ReadOutput(Arguments):
    """Arguments of read_output."""

    name: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$", description="Name of the output, as the command's result gave it.")]
    start: Annotated[int, Field(ge=0, description="Byte to begin with.")] = 0


def output_path(folder: Path, thread_id: str, name: str) -> Path:
    """The file of one output. The thread's id may hold anything, so a digest of it stands for it."""
    return folder / f"{hashlib.sha256(thread_id.encode()).hexdigest()[:32]}-{name}.out"


def output_name(path: Path) -> str:
    """What a model calls an output by."""
    return path.stem.rpartition("-")[2]


def output_tool(folder: Path) -> Tool:
    """The tool. It asks nobody: it reads what a command of the same thread has written, and nothing else.

    Args:
        folder: Where the files are, out of the commands' own reach.
    """

    async def read(arguments: ReadOutput, site: CallSite) -> ToolResult:
        path = output_path(folder, site.thread_id, arguments.name)
        try:
            data, size = await asyncio.to_thread(_piece, path, arguments.start)
        except OSError:
            return ToolResult(content=f"There is no output {arguments.name!r} in this thread.", is_error=True)
        begin = arguments.start + (first_character(data) if arguments.start else 0)
        end = arguments.start + (len(data) if arguments.start + len(data) == size else whole_characters(data))
        text = shown(data[begin - arguments.start : max(begin, end) - arguments.start])
        more = f"; read on with start={end}" if end < size else ""
        return ToolResult(content=f"{text}\n[bytes {begin} to {end} of {size}{more}]", details={"end": end, "size": size})

    return Tool(
        name="read_output",
        description="Read a page of the full output of a command whose result left some of it out.",
        arguments=ReadOutput,
        effect=Effect.NONE,
        run=read,
    )


def _piece(path: Path, start: int) -> tuple[bytes, int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, PAGE, start), os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
