"""`checkrein run`, `record`, `resume`, `recover`: everything that starts or takes up a run without a decision."""

from __future__ import annotations

import asyncio
import sys

from checkpoints.errors import UsageError
from checkpoints.status import RunStatus
from graphs.cli.conversation import cancelled_by_signals, converse, shown_to_its_end
from graphs.cli.desk import Desk
from graphs.cli.exits import Exit, of_outcome
from graphs.service import Service

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
        started = await service.submit(task, thread_id=thread, context=context, subject=desk.subject)
        return await converse(desk, service, started, context)


async def record(desk: Desk) -> Exit:
    """Runs a task with the model's part kept in a file."""
    desk.args.record = desk.args.file
    return await run(desk)


async def resume(desk: Desk) -> Exit:
    """Goes on with a thread from its newest checkpoint. What waits there is asked again."""
    async with desk.runner() as (service, context):
        started = await service.continue_thread(desk.args.thread, context=context, subject=desk.subject)
        return await converse(desk, service, started, context)


async def recover(desk: Desk) -> Exit:
    """Goes on with every run whose process died, and shows each to its end; or settles them.

    The status is that of the first run that did not complete.
    """
    async with desk.service() as service:
        return await (_settled(desk, service) if desk.args.settle else _continued(desk, service))


async def _settled(desk: Desk, service: Service) -> Exit:
    settled = await service.settle_orphans()
    desk.face.rows(
        "settled", [{"run_id": run.run_id, "thread_id": run.thread_id, "outcome": str(run.status)} for run in settled]
    )
    return Exit.COMPLETED


async def _continued(desk: Desk, service: Service) -> Exit:
    runs = await service.recover()
    desk.face.rows("recovered", [{"run_id": run.run_id, "thread_id": run.thread_id} for run in runs])
    statuses = []
    with cancelled_by_signals(desk, service, runs):
        for run in runs:
            ending = await shown_to_its_end(desk, run)
            statuses.append(of_outcome(RunStatus(ending["outcome"]), at_limit=not ending.get("completed", True)))
    desk.stops.ignore()
    return next((status for status in statuses if status is not Exit.COMPLETED), Exit.COMPLETED)


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
