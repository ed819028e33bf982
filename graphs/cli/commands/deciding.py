"""`checkrein approve`, `reject`, `edit`, `respond`, `decide`: show what waits, answer it, show the run that goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from checkpoints.errors import CheckreinError, UsageError
from checkpoints.records import Approval
from graphs.cli.commands.views import approval_row
from graphs.cli.conversation import answered, converse, decided, left_pending, pending
from graphs.cli.desk import Desk, OptionError
from graphs.cli.exits import Exit, of_error
from graphs.cli.face import complain
from graphs.cli.prompt import (
    ArgumentsError,
    Asked,
    Decision,
    approve_of,
    asked_in,
    edit_of,
    json_in,
    object_in,
    reject_of,
    respond_of,
    show,
    show_edit,
)
from graphs.service import Service
from nodes.context import AgentContext

Decide = Callable[[Desk, Sequence[Asked]], Awaitable[list[Decision]]]


class CommandLessError(UsageError):
    """`edit --command` for a call that has no command."""

    code = "no_command"
    hint = "Give all arguments with --args JSON."

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(f"A call of {tool} has no command to replace.")


async def approve(desk: Desk) -> Exit:
    """Approves what was named, or all that waits on the threads.

    Raises:
        OptionError: Calls are named, and several threads.
    """
    if desk.args.calls and len(desk.args.threads) > 1:
        problem = "it names calls of one thread, and several threads are named"
        raise OptionError("--call", problem, "Decide one thread at a time.")
    return await _decide(desk, desk.args.threads, _approvals)


async def reject(desk: Desk) -> Exit:
    """Rejects all that waits on the threads."""
    return await _decide(desk, desk.args.threads, _rejections)


async def edit(desk: Desk) -> Exit:
    """Replaces the arguments of the one call that waits."""
    return await _decide(desk, [desk.args.thread], _edits)


async def respond(desk: Desk) -> Exit:
    """Gives the result of the one call that waits."""
    return await _decide(desk, [desk.args.thread], _responses)


async def decide(desk: Desk) -> Exit:
    """Sends a list of decisions as it is, or asks the person who sits here."""
    if desk.args.decisions is not None:
        return await _decide(desk, [desk.args.thread], _given)
    if not desk.face.may_ask:
        raise OptionError(
            "--decisions", "it is needed where nobody can be asked", "Give the decisions as JSON, or use a terminal."
        )
    async with desk.runner() as (service, context):
        thread_id = (await pending(service, desk.args.thread)).thread_id
        run = await answered(desk, service, thread_id, context)
        return await converse(desk, service, run, context) if run else left_pending(desk, thread_id)


async def _decide(desk: Desk, names: Sequence[str], decisions_of: Decide) -> Exit:
    """Answers one thread after the other. All are looked up first, so that a wrong name changes nothing.

    Of several, one that fails does not keep the others from being answered; the status is that of the first which did not
    complete.
    """
    async with desk.runner() as (service, context):
        approvals = [await pending(service, name) for name in dict.fromkeys(names)]
        if len(approvals) == 1:
            return await _answer(desk, service, approvals[0], decisions_of, context)
        statuses = []
        for approval in approvals:
            try:
                statuses.append(await _answer(desk, service, approval, decisions_of, context))
            except CheckreinError as error:
                statuses.append(of_error(error))
                complain(error, statuses[-1], as_json=desk.face.reports)
        return next((status for status in statuses if status is not Exit.COMPLETED), Exit.COMPLETED)


async def _answer(desk: Desk, service: Service, approval: Approval, decisions_of: Decide, context: AgentContext) -> Exit:
    _show(desk, approval)
    decisions = await decisions_of(desk, asked_in(approval.value))
    run = await decided(desk, service, approval, decisions, context)
    return await converse(desk, service, run, context)


def _show(desk: Desk, approval: Approval) -> None:
    if desk.face.reports:
        desk.face.rows("approval", [approval_row(approval)])
    else:
        show(desk.face, asked_in(approval.value))


async def _approvals(desk: Desk, asked: Sequence[Asked]) -> list[Decision]:
    """An approval for each call that is meant. One that was named and does not wait is sent too, so that it is refused."""
    named: list[str] = desk.args.calls
    waiting = {call.call_id: call for call in asked}
    meant = sorted(named, key=lambda name: [*waiting, name].index(name)) if named else list(waiting)
    remember = desk.args.remember
    return [
        approve_of(waiting[name], remember) if name in waiting else {"type": "approve", "tool_call_id": name} for name in meant
    ]


async def _rejections(desk: Desk, asked: Sequence[Asked]) -> list[Decision]:
    return [reject_of(call, desk.args.reason) for call in asked]


async def _edits(desk: Desk, asked: Sequence[Asked]) -> list[Decision]:
    call = asked[0]
    if desk.args.args is not None:
        args = object_in(desk.args.args, "arguments")
    elif "command" in call.args:
        args = {**call.args, "command": desk.args.command_text}
    else:
        raise CommandLessError(call.name)
    show_edit(desk.face, call, args)
    return [edit_of(call, args)]


async def _responses(desk: Desk, asked: Sequence[Asked]) -> list[Decision]:
    return [respond_of(asked[0], desk.args.message)]


async def _given(desk: Desk, asked: Sequence[Asked]) -> list[Decision]:
    """The caller's own decisions, bound to what was shown where they do not say otherwise."""
    value: Any = json_in(await asyncio.to_thread(_source, desk.args.decisions), "decisions")
    if isinstance(value, dict) and set(value) == {"decisions"}:
        value = value["decisions"]
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        hint = 'Give a list with one object for each call, for example [{"type": "approve"}].'
        raise ArgumentsError("decisions", "they are not a list of objects", hint)
    if len(value) != len(asked):
        return value
    named = {call.seen["tool_call_id"]: call.seen for call in asked}
    return [
        {**named.get(decision.get("tool_call_id", ""), call.seen), **decision}
        for call, decision in zip(asked, value, strict=True)
    ]


def _source(text: str) -> str:
    try:
        if text == "-":
            return sys.stdin.buffer.read().decode()
        return Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentsError(
            "decisions", str(error), "Name a readable UTF-8 file after `@`, or `-` for standard input."
        ) from error
