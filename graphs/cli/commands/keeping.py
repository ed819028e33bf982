"""`checkrein store`, `rules`, `sessions`: what is kept, how much it is, and what of it goes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from checkpoints.approvals import Rule
from checkpoints.sessions import SandboxSession
from graphs.cli.desk import Desk, OptionError
from graphs.cli.exits import Exit


async def stats(desk: Desk) -> Exit:
    """The store's size by kind, and the largest threads."""
    async with desk.service() as service:
        usage = await service.keeping.usage(largest=desk.args.largest)
    whole = {"threads": usage.threads, "database_bytes": usage.database_bytes, **usage.bytes_by_kind}
    desk.face.rows("store", [whole])
    threads = [{"thread_id": thread.thread_id, "total": thread.total, **thread.bytes_by_kind} for thread in usage.largest]
    titled = [row | {"title": thread.title} for row, thread in zip(threads, usage.largest, strict=True)]
    desk.face.rows("thread_usage", titled)
    return Exit.COMPLETED


async def prune(desk: Desk) -> Exit:
    """Deletes what is due, and says what stays because it is needed.

    Raises:
        OptionError: Nothing was said that could go.
    """
    args = desk.args
    if args.older_than is None and args.keep is None and not (args.thin or args.compact):
        raise OptionError("store prune", "nothing says what may go", "Give --older-than, --keep, --thin or --compact.")
    async with desk.service() as service:
        report = await service.keeping.prune(
            older_than=None if args.older_than is None else timedelta(seconds=args.older_than),
            keep_newest=args.keep,
            thin=args.thin,
            compact=args.compact,
        )
    row = {
        "deleted": len(report.deleted),
        "thinned_checkpoints": report.thinned_checkpoints,
        "kept_busy": len(report.kept_busy),
        "compacted": args.compact,
    }
    desk.face.rows("pruned", [row])
    desk.face.rows("deleted", [{"thread_id": thread_id} for thread_id in report.deleted])
    desk.face.rows("needed", [{"thread_id": thread_id} for thread_id in report.kept_busy])
    return Exit.COMPLETED


async def export(desk: Desk) -> Exit:
    """Writes a thread to a file."""
    path = Path(desk.args.file)
    async with desk.service() as service:
        thread_id = await service.find_thread(desk.args.thread)
        await service.keeping.export_thread(thread_id, path)
    desk.face.rows("exported", [{"thread_id": thread_id, "file": str(path)}])
    return Exit.COMPLETED


async def imported(desk: Desk) -> Exit:
    """Stores a thread from a file."""
    path = Path(desk.args.file)
    async with desk.service() as service:
        thread_id = await service.keeping.import_thread(path, thread_id=desk.args.thread)
    desk.face.rows("imported", [{"thread_id": thread_id, "file": str(path)}])
    return Exit.COMPLETED


async def list_rules(desk: Desk) -> Exit:
    """The standing permissions in force."""
    async with desk.service() as service:
        rules = await service.rules()
    desk.face.rows("rule", [rule_row(rule) for rule in rules])
    return Exit.COMPLETED


async def revoke(desk: Desk) -> Exit:
    """Takes standing permissions back. All are looked up first, so that a wrong name changes nothing."""
    async with desk.service() as service:
        rules = [await service.find_rule(name) for name in desk.args.names]
        for rule in rules:
            await service.revoke_rule(rule.rule_id)
    desk.face.rows("revoked", [rule_row(rule) for rule in rules])
    return Exit.COMPLETED


async def list_sessions(desk: Desk) -> Exit:
    """The sandbox sessions."""
    async with desk.service() as service:
        sessions = await service.sessions()
    desk.face.rows("session", [session_row(session) for session in sessions])
    return Exit.COMPLETED


async def delete_sessions(desk: Desk) -> Exit:
    """Ends and forgets sandbox sessions. All are looked up first, so that a wrong name changes nothing."""
    async with desk.service() as service:
        sessions = [await service.find_session(name) for name in desk.args.names]
        for session in sessions:
            await service.delete_session(session.session_id)
    desk.face.rows("deleted", [session_row(session) for session in sessions])
    return Exit.COMPLETED


def rule_row(rule: Rule) -> dict[str, Any]:
    """A standing permission as JSON, with what it lets run in one line."""
    return {
        "rule_id": rule.rule_id,
        "scope": rule.scope,
        "thread_id": rule.thread_id,
        "tool": rule.tool,
        "allows": _allowed(rule.match),
        "created_by": rule.created_by,
        "created_at": rule.created_at.isoformat(timespec="seconds"),
    }


def _allowed(match: Mapping[str, Any]) -> str:
    return shlex.join(match["command"]) if match.get("command") else str(match.get("path") or "every call")


def session_row(session: SandboxSession) -> dict[str, Any]:
    """A sandbox session as JSON."""
    return {
        "session_id": session.session_id,
        "key": session.key,
        "status": str(session.status),
        "workspace": session.workspace,
        "last_used_at": session.last_used_at.isoformat(timespec="seconds"),
    }
