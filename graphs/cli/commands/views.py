"""`checkrein list`, `inbox`, `show`, `follow`, `graph`: look, and change nothing."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from checkpoints.records import Approval, ThreadInfo
from checkpoints.records import Run as RunRecord
from graphs.cli.desk import Desk
from graphs.cli.exits import Exit, of_outcome
from graphs.cli.prompt import asked_in, show
from graphs.drawing import mermaid
from graphs.service import ThreadView
from nodes.display import describe, shown


async def list_threads(desk: Desk) -> Exit:
    """Threads, last touched first."""
    async with desk.service() as service:
        desk.face.rows("thread", [thread_row(info) for info in await service.list(limit=desk.args.limit)])
    return Exit.COMPLETED


async def inbox(desk: Desk) -> Exit:
    """Everything that waits for a decision, with the whole request for programs."""
    async with desk.service() as service:
        waiting = await service.inbox()
    if desk.face.reports:
        desk.face.rows("approval", [approval_row(approval) for approval in waiting])
    else:
        desk.face.rows("waiting", [_waiting_row(approval) for approval in waiting])
    return Exit.COMPLETED


async def show_thread(desk: Desk) -> Exit:
    """A thread whole."""
    async with desk.service() as service:
        view = await service.show(desk.args.thread)
    if desk.face.reports:
        desk.face.rows("thread", [thread_row(view.info)])
        desk.face.rows("run", [run_row(run) for run in view.runs])
        desk.face.rows("message", [_message_row(message) for message in view.messages])
        desk.face.rows("approval", [approval_row(approval) for approval in view.pending])
    else:
        _tell(desk, view)
    return Exit.COMPLETED


async def follow(desk: Desk) -> Exit:
    """A run's events to its end. A signal ends the following; the run goes on."""
    async with desk.service() as service:
        run = await service.find_run(desk.args.thread)
        payload: Any = {}
        async with desk.face.live(), aclosing(service.follow(run.run_id, after=desk.args.after)) as events:  # type: ignore[type-var]
            async for event in events:
                desk.face.event(event)
                payload = event.payload
        stored = (await service.find_run(run.run_id)).payload or payload
    return of_outcome(str(stored["outcome"]), at_limit=not stored.get("completed", True))


async def graph(desk: Desk) -> Exit:
    """The agent graph as Mermaid text."""
    desk.face.say(await mermaid())
    return Exit.COMPLETED


def thread_row(info: ThreadInfo) -> dict[str, Any]:
    """A thread as JSON."""
    return {
        "thread_id": info.thread_id,
        "title": info.title,
        "updated_at": info.updated_at.isoformat(timespec="seconds"),
        "live_run_id": info.live_run_id,
    }


def run_row(run: RunRecord) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "run_id": run.run_id,
        "status": str(run.status),
        "created_at": run.created_at.isoformat(timespec="seconds"),
        "resumes_run_id": run.resumes_run_id,
        "cause": f"{run.cause.kind}: {run.cause.reason}" if run.cause else "",
    }


def approval_row(approval: Approval) -> dict[str, Any]:
    """An approval as JSON, the whole request included."""
    return {
        "thread_id": approval.thread_id,
        "run_id": approval.run_id,
        "interrupt_id": approval.interrupt_id,
        "status": str(approval.status),
        "created_at": approval.created_at.isoformat(timespec="seconds"),
        "expires_at": approval.expires_at.isoformat(timespec="seconds") if approval.expires_at else None,
        "value": approval.value,
    }


def _waiting_row(approval: Approval) -> dict[str, Any]:
    calls = [describe(call.name, call.args).text for call in asked_in(approval.value)]
    since = approval.created_at.isoformat(timespec="seconds")
    return {"thread_id": approval.thread_id, "since": since, "asks": " | ".join(calls)[:200]}


def _message_row(message: AnyMessage) -> dict[str, Any]:
    row: dict[str, Any] = {"type": message.type, "text": message.text}
    if isinstance(message, AIMessage):
        row["tool_calls"] = [{"id": call["id"], "name": call["name"], "args": call["args"]} for call in message.tool_calls]
    if message.type == "tool":
        row |= {"tool_call_id": message.tool_call_id, "status": message.status}
    return row


def _tell(desk: Desk, view: ThreadView) -> None:
    desk.face.rows("thread", [thread_row(view.info)])
    for message in view.messages:
        desk.face.say(f"{message.type}:", "quiet")
        for line in shown(message.text).lines():
            desk.face.say(f"  {line}", "output" if message.type == "tool" else "said")
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            for line in describe(call["name"], call["args"]).lines():
                desk.face.say(f"  {line}", "tool")
    desk.face.rows("runs", [run_row(run) for run in view.runs])
    for approval in view.pending:
        show(desk.face, asked_in(approval.value))
        desk.face.say(f"Answer with `checkrein approve {approval.thread_id}`, or reject, edit, respond.", "quiet")
