"""Background scopes by owner, so that the end of a run or of a session ends everything that it left running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from checkpoints.clock import Clock
from checkpoints.errors import UsageError
from nodes.processes.processes import Processes
from nodes.processes.scope import Scope, outlast
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Reason, Verdict

KEPT_ENDED = 32
"""Ended scopes an owner's list still shows; the oldest are forgotten first, with their output."""


class UnknownScopeError(UsageError):
    """This owner has no scope of this name: it never had, or it ended long ago and was forgotten."""

    code = "unknown_scope"
    hint = "List the owner's scopes to see the names."

    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name
        super().__init__(f"There is no background process {name!r} here.")


class OwnerEndedError(UsageError):
    """The run or session that a process would have belonged to ended while it was being started."""

    code = "owner_ended"
    hint = "Start it in a run that is alive."

    def __init__(self) -> None:
        super().__init__("The run or session ended while its process was being started; the process was stopped.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """One background scope in an owner's list.

    Attributes:
        name: How the owner calls it: `p1`, `p2`, ... never given twice.
        scope: The scope itself.
        started: Monotonic second of its start.
    """

    name: str
    scope: Scope
    started: float

    def record(self, now: float) -> dict[str, Any]:
        """Its line in a list, as plain JSON."""
        verdict = self.scope.verdict
        return {
            "name": self.name,
            "title": self.scope.title,
            "state": "running" if verdict is None else verdict.reason.value,
            "exit_code": verdict.exit_code if verdict else None,
            "seconds": round(now - self.started, 1),
            "output_bytes": self.scope.output.total_bytes,
        }


class _Owned:
    """What one owner has, until it is stopped."""

    def __init__(self) -> None:
        self.scopes: dict[str, Background] = {}
        self._count = 0

    def add(self, scope: Scope, started: float) -> Background:
        self._count += 1
        made = Background(name=f"p{self._count}", scope=scope, started=started)
        self.scopes[made.name] = made
        ended = [name for name, background in self.scopes.items() if background.scope.verdict is not None]
        for name in ended[: max(0, len(ended) - KEPT_ENDED)]:
            del self.scopes[name]
        return made


class Registry:
    """The background scopes of every owner of one runtime. An owner is a run's id or a session's key."""

    def __init__(self, processes: Processes, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock
        self._owners: dict[str, _Owned] = {}

    async def start(self, owner: str, spec: ScopeSpec) -> Background:
        """Starts a scope that outlives the call, for this owner.

        Raises:
            ProcessesError: Nothing was started.
            OwnerEndedError: The owner was stopped while the scope started; the scope has been stopped as well.
        """
        owned = self._owners.setdefault(owner, _Owned())
        scope = await self._processes.start(spec)
        if self._owners.get(owner) is not owned:
            await scope.stop(Reason.OWNER_ENDED)
            raise OwnerEndedError
        return owned.add(scope, self._clock.monotonic())

    def get(self, owner: str, name: str) -> Background:
        """One scope of an owner, running or ended.

        Raises:
            UnknownScopeError: The owner has none of this name.
        """
        owned = self._owners.get(owner)
        if owned is None or name not in owned.scopes:
            raise UnknownScopeError(owner, name)
        return owned.scopes[name]

    def list(self, owner: str) -> tuple[Background, ...]:
        """All scopes of an owner, oldest first, those that ended lately included."""
        owned = self._owners.get(owner)
        return tuple(owned.scopes.values()) if owned else ()

    async def stop(self, owner: str, name: str, reason: Reason = Reason.CANCEL) -> Verdict:
        """Ends one scope and answers its verdict; the same verdict again when it has ended before.

        Raises:
            UnknownScopeError: The owner has none of this name.
        """
        return await self.get(owner, name).scope.stop(reason)

    async def stop_owner(self, owner: str, reason: Reason = Reason.OWNER_ENDED) -> tuple[Verdict, ...]:
        """Ends all of an owner's scopes at once and forgets the owner, also what it is just starting.

        Every scope is stopped whatever becomes of the others, and a cancellation goes through only afterwards. The verdicts
        are of those that ran and of those that had ended without a proof.
        """
        owned = self._owners.pop(owner, _Owned())
        scopes = [background.scope for background in owned.scopes.values()]
        unproven = [scope for scope in scopes if scope.verdict is None or not scope.verdict.empty]
        stops: asyncio.Future[list[Verdict]] = asyncio.gather(*(scope.stop(reason) for scope in unproven))
        verdicts = await outlast(stops)
        return tuple(verdicts)
