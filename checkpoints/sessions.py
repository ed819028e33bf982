"""Sandbox sessions: workspaces that are reused between runs by key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from checkpoints.run_rows import plain
from checkpoints.store import Store
from checkpoints.tx import Row, Tx, instant, one, stamp


class SessionStatus(StrEnum):
    """Whether some run uses the session now."""

    RUNNING = "running"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSession:
    """A session as stored. `workspace` is an absolute path."""

    session_id: str
    key: str
    workspace: str
    status: SessionStatus
    created_at: datetime
    last_used_at: datetime


def session_id_of(key: str) -> str:
    """The id that belongs to a key, the same everywhere."""
    return f"runner-{hashlib.sha256(key.encode()).hexdigest()}"


class SandboxSessions:
    """The sessions of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def touch(self, key: str, workspace: str, status: SessionStatus) -> SandboxSession:
        """Makes or finds the session of a key, sets its status, and marks it as used now. A known workspace stays."""
        return await self._store.write(_touch, key, workspace, status, self._store.clock.now())

    async def get(self, key: str) -> SandboxSession | None:
        """The session of a key."""
        return await self._store.read(_get, session_id_of(key))

    async def list(self) -> tuple[SandboxSession, ...]:
        """All sessions, last used first."""
        return await self._store.read(_list)

    async def delete(self, session_id: str) -> bool:
        """Forgets a session (its folder is the caller's business); False when there is none."""
        return await self._store.write(_delete, session_id)


_SELECT = "SELECT session_id, key, workspace, status, created_at, last_used_at FROM sandbox_sessions"


def _touch(tx: Tx, key: str, workspace: str, status: SessionStatus, now: datetime) -> SandboxSession:
    tx.execute(
        "INSERT INTO sandbox_sessions (session_id, key, workspace, status, created_at, last_used_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO UPDATE SET status = excluded.status,"
        " last_used_at = excluded.last_used_at",
        (session_id_of(key), plain(key), workspace, status.value, stamp(now), stamp(now)),
    )
    found = _get(tx, session_id_of(key))
    assert found is not None
    return found


def _get(tx: Tx, session_id: str) -> SandboxSession | None:
    row = one(tx.execute(f"{_SELECT} WHERE session_id = ?", (session_id,)))
    return None if row is None else _session_of(row)


def _list(tx: Tx) -> tuple[SandboxSession, ...]:
    return tuple(_session_of(row) for row in tx.execute(f"{_SELECT} ORDER BY last_used_at DESC, session_id"))


def _delete(tx: Tx, session_id: str) -> bool:
    return bool(
        tx.execute("DELETE FROM sandbox_sessions WHERE session_id = ? RETURNING session_id", (session_id,)),
    )


def _session_of(row: Row) -> SandboxSession:
    return SandboxSession(
        session_id=row[0],
        key=row[1],
        workspace=row[2],
        status=SessionStatus(row[3]),
        created_at=instant(row[4]),
        last_used_at=instant(row[5]),
    )
