"""`checkrein run`: a task from the command line or from standard input."""

from __future__ import annotations

import asyncio
import sys

from checkpoints.errors import UsageError
from graphs.cli.conversation import converse
from graphs.cli.desk import Desk
from graphs.cli.exits import Exit

READ_LIMIT = 16 * 1024 * 1024
"""Bytes that are read of a task from standard input: far above what the service takes, far below what hurts."""


class TaskTextError(UsageError):
    """The task is not text."""

    code = "task_text"
    hint = "Give the task as UTF-8 text."


async def run(desk: Desk) -> Exit:
    """Starts a run and shows it."""
    task = await asyncio.to_thread(_from_input) if desk.args.task == "-" else _as_text(desk.args.task)
    async with desk.runner() as (service, context):
        thread = await service.find_thread(desk.args.thread) if desk.args.thread else ""
        started = await service.submit(task, thread_id=thread, context=context)
        return await converse(desk, service, started, context)


def _from_input() -> str:
    try:
        return sys.stdin.buffer.read(READ_LIMIT).decode()
    except UnicodeDecodeError as error:
        raise TaskTextError(f"The task on standard input is not UTF-8: {error}.") from error


def _as_text(word: str) -> str:
    """The argument, unless it holds bytes that are no UTF-8 (Python hands those on as lone surrogates)."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise TaskTextError("The task is not UTF-8 text.") from error
    return word
