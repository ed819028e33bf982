"""What waits for a person, across all threads, and the standing permissions that people gave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from checkpoints import approval_rows
from checkpoints.clock import fresh_id
from checkpoints.records import Approval
from checkpoints.run_errors import ApprovalUnknownError
from checkpoints.run_rows import dump, plain
from checkpoints.store import Store
from checkpoints.tx import Tx, instant, stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A standing permission: calls of `tool` that fit `match` need not ask, in one thread (`session`) or anywhere (`always`).

    What `match` means is the policy's business; the store only keeps it.
    """

    rule_id: str
    scope: Literal["always", "session"]
    thread_id: str
    tool: str
    match: Mapping[str, Any]
    created_by: str
    created_at: datetime


class Approvals:
    """Reads approvals; they are asked, decided and ended by the ledger, in the transactions of their runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def inbox(self, *, limit: int = 100) -> tuple[Approval, ...]:
        """What waits, over all threads, oldest first. Marks what has expired."""
        await self._touch()
        return await self._store.read(approval_rows.find, "status = 'pending'", (), limit)

    async def of_thread(self, thread_id: str, *, pending: bool = False) -> tuple[Approval, ...]:
        """A thread's approvals, oldest first, all or only those that wait. Marks what has expired."""
        await self._touch()
        only = " AND status = 'pending'" if pending else ""
        return await self._store.read(approval_rows.find, f"thread_id = ?{only}", (thread_id,))

    async def decided_for(self, run_id: str) -> tuple[Approval, ...]:
        """The approvals whose answers a run was admitted with: what recovery delivers again, by interrupt id."""
        return await self._store.read(approval_rows.find, "decided_run_id = ?", (run_id,))

    async def get(self, thread_id: str, interrupt_id: str) -> Approval:
        """One approval; ApprovalUnknownError if there is none. Marks what has expired."""
        await self._touch()
        where = "thread_id = ? AND interrupt_id = ?"
        found = await self._store.read(approval_rows.find, where, (thread_id, interrupt_id))
        if not found:
            raise ApprovalUnknownError(interrupt_id, thread_id)
        return found[0]

    async def _touch(self) -> None:
        now = self._store.clock.now()
        if await self._store.read(approval_rows.any_due, now):
            await self._store.write(approval_rows.expire_due, now)


class Rules:
    """Standing permissions: given, listed, revoked. A revoked rule stays in the table for the record."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def allow(self, tool: str, match: Mapping[str, Any], *, created_by: str = "", thread_id: str = "") -> Rule:
        """Adds a rule: for one thread when `thread_id` is given, for the whole store otherwise."""
        rule = Rule(
            rule_id=fresh_id(),
            scope="session" if thread_id else "always",
            thread_id=thread_id,
            tool=tool,
            match=match,
            created_by=plain(created_by),
            created_at=self._store.clock.now(),
        )
        await self._store.write(_insert_rule, rule)
        return rule

    async def active(self, *, thread_id: str | None = None) -> tuple[Rule, ...]:
        """Rules in force, oldest first: all of them, or those that hold for one thread."""
        return await self._store.read(_select_rules, thread_id)

    async def revoke(self, rule_id: str) -> bool:
        """Ends a rule; False when there is none in force of this id."""
        return await self._store.write(_revoke_rule, rule_id, self._store.clock.now())


def _insert_rule(tx: Tx, rule: Rule) -> None:
    tx.execute(
        "INSERT INTO rules (rule_id, scope, thread_id, tool, match, created_by, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            rule.rule_id,
            rule.scope,
            rule.thread_id,
            rule.tool,
            dump(rule.match),
            rule.created_by,
            stamp(rule.created_at),
        ),
    )


def _select_rules(tx: Tx, thread_id: str | None) -> tuple[Rule, ...]:
    where, params = ("", ()) if thread_id is None else (" AND (scope = 'always' OR thread_id = ?)", (thread_id,))
    rows = tx.execute(
        "SELECT rule_id, scope, thread_id, tool, match, created_by, created_at FROM rules"
        f" WHERE revoked_at IS NULL{where} ORDER BY created_at, rule_id",
        params,
    )
    return tuple(
        Rule(
            rule_id=row[0],
            scope=row[1],
            thread_id=row[2],
            tool=row[3],
            match=json.loads(row[4]),
            created_by=row[5],
            created_at=instant(row[6]),
        )
        for row in rows
    )


def _revoke_rule(tx: Tx, rule_id: str, now: datetime) -> bool:
    return bool(
        tx.execute(
            "UPDATE rules SET revoked_at = ? WHERE rule_id = ? AND revoked_at IS NULL RETURNING rule_id",
            (stamp(now), rule_id),
        )
    )
