"""`checkrein list`, `inbox`, `show`, `follow`, `graph`: look, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from checkpoints.records import Approval, Note, ThreadInfo
from checkpoints.records import Run as RunRecord
from graphs.cli.desk import Desk
from graphs.cli.exits import Exit, of_outcome
from graphs.cli.prompt import asked_in, show
from graphs.drawing import mermaid
from graphs.keeping import Waiting
from graphs.service import ThreadView
from nodes.display import describe, escape_line, shown


async def list_threads(desk: Desk) -> Exit:
    """Threads, last touched first."""
    async with desk.service() as service:
        desk.face.rows("thread", [thread_row(info) for info in await service.list(limit=desk.args.limit)])
    return Exit.COMPLETED


async def inbox(desk: Desk) -> Exit:
    """Everything that waits for a decision, with the whole request for programs."""
    async with desk.service() as service:
        waiting = await service.keeping.waiting()
    if desk.face.reports:
        rows = [approval_row(entry.approval) | _asked(entry) | {"age_seconds": round(entry.age, 1)} for entry in waiting]
        desk.face.rows("approval", rows)
        return Exit.COMPLETED
    desk.face.rows("waiting", [_waiting_row(entry) for entry in waiting])
    if waiting:
        desk.face.say("Decide with `checkrein approve THREAD...`, reject, edit, respond or decide.", "quiet")
    return Exit.COMPLETED


async def show_thread(desk: Desk) -> Exit:
    """A thread whole."""
    async with desk.service() as service:
        view = await service.show(desk.args.thread)
    if desk.face.reports:
        desk.face.rows("thread", [thread_row(view.info)])
        desk.face.rows("run", [run_row(run) for run in view.runs])
        desk.face.rows("run_note", [note_row(note) for run in view.runs for note in view.notes.get(run.run_id, ())])
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
        "subject": run.subject_id,
        **_receipt(run.payload or {}),
    }


def _receipt(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What a run took, from its terminal event: unknown stays unknown."""
    return {
        "model": payload.get("model", ""),
        "attempts": payload.get("attempts"),
        "usage": payload.get("usage", {}),
        "cost_usd": payload.get("estimated_cost_usd"),
        "cleanup_errors": payload.get("cleanup_errors", []),
    }


def note_row(note: Note) -> dict[str, Any]:
    """A note as JSON."""
    return {
        "run_id": note.run_id,
        "note": note.kind,
        "at": note.at.isoformat(timespec="seconds"),
        "body": dict(note.body),
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


def _asked(entry: Waiting) -> dict[str, Any]:
    return {"title": entry.title, "asked_by": entry.asked_by, "depth": entry.depth}


def _waiting_row(entry: Waiting) -> dict[str, Any]:
    approval = entry.approval
    calls = [describe(call.name, call.args).text for call in asked_in(approval.value)]
    return {
        "thread_id": approval.thread_id,
        "for": _span(entry.age),
        "asked by": entry.asked_by + (f" (run of a run, depth {entry.depth})" if entry.depth else ""),
        "task": entry.title[:60],
        "asks": " | ".join(calls)[:200],
    }


def _span(seconds: float) -> str:
    """Seconds in the largest unit of which there are two at least."""
    units = (("d", 86_400), ("h", 3600), ("min", 60))
    return next((f"{seconds / size:.0f} {unit}" for unit, size in units if seconds >= 2 * size), f"{seconds:.0f} s")


def _message_row(message: AnyMessage) -> dict[str, Any]:
    row: dict[str, Any] = {"type": message.type, "text": message.text}
    if isinstance(message, AIMessage):
        row["tool_calls"] = [{"id": call["id"], "name": call["name"], "args": call["args"]} for call in message.tool_calls]
    if message.type == "tool":
        row |= {"tool_call_id": message.tool_call_id, "status": message.status}
    return row


def _told_run(run: RunRecord) -> dict[str, Any]:
    """A run for a person: without what is empty for nearly every one."""
    row, payload = run_row(run), run.payload or {}
    usage = payload.get("usage", {})
    took = f"{payload['attempts']} model calls" if "attempts" in payload else ""
    tokens = f", {usage['total_tokens']:,} tokens" if "total_tokens" in usage else ""
    cost = f", {payload['estimated_cost_usd']} USD" if payload.get("estimated_cost_usd") else ""
    doubt = "CONTAINMENT LOST. " if payload.get("cleanup_errors") else ""
    kept = {name: row[name] for name in ("run_id", "status", "created_at", "resumes_run_id")}
    return kept | {"took": took + tokens + cost, "cause": doubt + row["cause"]}


def _tell(desk: Desk, view: ThreadView) -> None:
    desk.face.rows("thread", [thread_row(view.info)])
    for message in view.messages:
        desk.face.say(f"{message.type}:", "quiet")
        for line in shown(message.text).lines():
            desk.face.say(f"  {line}", "output" if message.type == "tool" else "said")
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            for line in describe(call["name"], call["args"]).lines():
                desk.face.say(f"  {line}", "tool")
    desk.face.rows("runs", [_told_run(run) for run in view.runs])
    for note in (note for run in view.runs for note in view.notes.get(run.run_id, ())):
        body = "; ".join(f"{key}: {value}" for key, value in note.body.items() if value)
        desk.face.say(f"Note on run {note.run_id[:8]}: {escape_line(note.kind)} ({escape_line(body)})", "quiet")
    for approval in view.pending:
        show(desk.face, asked_in(approval.value))
        desk.face.say(f"Answer with `checkrein approve {approval.thread_id}`, or reject, edit, respond.", "quiet")
