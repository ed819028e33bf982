"""Sandbox sessions: named workspaces, reused between runs by key; `running` while something runs in one, else `idle`."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from checkpoints.sessions import SandboxSession, SandboxSessions, SessionStatus, session_id_of


class Sandboxes:
    """The sandbox sessions of one runtime.

    Args:
        sessions: Where they are remembered.
        folder: Where the workspaces of sessions lie that were given none; outside of every other workspace.
    """

    def __init__(self, sessions: SandboxSessions, folder: Path) -> None:
        self._sessions = sessions
        self._folder = folder
        self._busy: Counter[str] = Counter()

    async def open(self, key: str, workspace: str) -> SandboxSession:
        """The session of a key, made when it is new. A session that is there keeps its workspace.

        Args:
            key: The reuse key.
            workspace: Absolute path for a new session; empty makes a folder of its own.
        """
        known = await self._sessions.get(key)
        if known is not None:
            return await self._sessions.touch(key, known.workspace, known.status)
        place = Path(workspace) if workspace else self._folder / session_id_of(key)
        if not workspace:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return await self._sessions.touch(key, str(place), SessionStatus.IDLE)

    async def enter(self, key: str) -> None:
        """Something starts to run in the session. Without a key nothing is kept."""
        if key:
            self._busy[key] += 1
            if self._busy[key] == 1:
                await self._mark(key, SessionStatus.RUNNING)

    async def leave(self, key: str) -> None:
        """It has ended; once for each `enter`."""
        if key:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]
                await self._mark(key, SessionStatus.IDLE)

    async def settle(self, key: str) -> None:
        """Says `idle` of a session whose runtime died."""
        if key and not self._busy[key]:
            await self._mark(key, SessionStatus.IDLE)

    async def list(self) -> tuple[SandboxSession, ...]:
        """All sessions, last used first."""
        return await self._sessions.list()

    async def _mark(self, key: str, status: SessionStatus) -> None:
        known = await self._sessions.get(key)
        if known is not None:  # a session that was deleted meanwhile is not made again
            await self._sessions.touch(key, known.workspace, status)

    async def delete(self, session_id: str) -> bool:
        """Forgets a session and removes its folder, if it was made here; False when there is none."""
        found = await self._sessions.delete(session_id)
        own = self._folder / session_id
        if found and own.is_dir():
            shutil.rmtree(own)
        return found
