"""The effect journal: a tool call with an effect happens at most once, whatever dies when.

`enter` before the effect says what to do; `start` commits that it is about to happen; `record` keeps its result. A call
that was started and has no result is unknown, and only a person may settle it. Every step is on disk when it returns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from checkpoints.records import EffectRow, Fence
from checkpoints.run_errors import EffectConflictError
from checkpoints.run_rows import dump, plain
from checkpoints.squeezing import grown, squeezed
from checkpoints.status import EFFECT_NEXT, EffectStatus
from checkpoints.store import Store
from checkpoints.store_errors import StoreError
from checkpoints.threads import check_fence, ensure_thread
from checkpoints.tx import Row, Tx, instant, one, stamp

COLUMNS = (
    "t.thread_id, t.call_id, t.run_id, t.tool, t.digest, t.preview, t.status, t.scope, t.result, t.resolved_by, t.updated_at"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCall:
    """A tool call as the journal knows it. `digest` covers tool name and validated arguments: what was approved."""

    thread_id: str
    call_id: str
    run_id: str
    tool: str
    digest: str
    preview: str = ""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing has happened yet: go on."""


@dataclass(frozen=True, slots=True)
class Done:
    """It has happened: use this result and do nothing."""

    result: Any


@dataclass(frozen=True, slots=True)
class Unknown:
    """It was started and nobody knows how it ended: ask a person."""

    effect: EffectRow


Entry = Fresh | Done | Unknown


class Resolution(StrEnum):
    """What a person may say about an unknown effect."""

    RERUN = "rerun"
    SKIP = "skip"
    RESULT = "result"


class Journal:
    """The journal of a store. Fences are checked in the transaction of every step.

    A fence of None is for a graph that is driven without a run; it is refused while a run is live on the thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Results whose write failed: the effect happened, so they are written before anything else is decided.
        self._unsaved: dict[tuple[str, str], Any] = {}

    async def enter(self, call: EffectCall, fence: Fence | None, *, start: bool = False) -> Entry:
        """Decides what to do about a call, and writes its intent when it is fresh.

        A call whose intent was written but that was not started is fresh again. A started one without a result is unknown
        from now on: whoever holds the fence is the only live run, so whoever started it is gone. With `start`, a fresh call
        is marked as started in the same commit.

        Raises:
            EffectConflictError: Another call (other digest) was journalled under this id.
            StaleFenceError, ThreadBusyError, StoreError: As for every write.
        """
        key = (call.thread_id, call.call_id)
        if key in self._unsaved:
            await self.record(*key, fence, self._unsaved[key])
        return await self._store.write(_enter, call, fence, start, self._store.clock.now())

    async def start(self, thread_id: str, call_id: str, fence: Fence | None, scope: Any = None) -> None:
        """Commits that the effect is about to happen. `scope` says what will carry it, where that is known before."""
        await self._step(thread_id, call_id, fence, EffectStatus.STARTED, scope=scope)

    async def identify(self, thread_id: str, call_id: str, fence: Fence | None, scope: Any) -> None:
        """Keeps the identity of what was started (JSON), for recovery to stop it."""
        await self._store.write(_identify, thread_id, call_id, fence, dump(scope), self._store.clock.now())

    async def record(self, thread_id: str, call_id: str, fence: Fence | None, result: Any) -> None:
        """Keeps the result (JSON). If that fails, the result is kept in memory and the next `enter` writes it first."""
        try:
            await self._step(thread_id, call_id, fence, EffectStatus.DONE, result=result)
        except StoreError:
            self._unsaved[thread_id, call_id] = result
            raise
        self._unsaved.pop((thread_id, call_id), None)

    async def mark_unknown(self, thread_id: str) -> tuple[EffectRow, ...]:
        """Marks what a dead run had started on a thread as unknown, and gives all its unknown effects.

        Raises:
            ThreadBusyError: A run is live on the thread.
        """
        return await self._store.write(_mark_unknown, thread_id, self._store.clock.now())

    async def resolve(
        self, thread_id: str, call_id: str, how: Resolution, *, by: str, result: Any = None, fence: Fence | None = None
    ) -> EffectRow:
        """Settles an unknown effect as a person says: run it again, or take `result` as what it gave (also for a skip).

        Raises:
            EffectConflictError: It is not unknown.
        """
        then = EffectStatus.INTENT if how is Resolution.RERUN else EffectStatus.DONE
        return await self._step(thread_id, call_id, fence, then, result=result, resolved_by=by, only=EffectStatus.UNKNOWN)

    async def effects(self, thread_id: str, *, only_open: bool = False) -> tuple[EffectRow, ...]:
        """A thread's effects in the order of their intents, all or only those without a result."""
        return await self._store.read(_effects, thread_id, " AND t.status <> 'done'" if only_open else "")

    async def _step(
        self,
        thread_id: str,
        call_id: str,
        fence: Fence | None,
        then: EffectStatus,
        *,
        scope: Any = None,
        result: Any = None,
        resolved_by: str = "",
        only: EffectStatus | None = None,
    ) -> EffectRow:
        values = (None if scope is None else dump(scope), None if then is not EffectStatus.DONE else squeezed(dump(result)))
        now = self._store.clock.now()
        return await self._store.write(_advance, (thread_id, call_id), fence, then, values, plain(resolved_by), only, now)


def _enter(tx: Tx, call: EffectCall, fence: Fence | None, start: bool, now: datetime) -> Entry:  # noqa: FBT001
    _check(tx, call.thread_id, fence, now)
    first = EffectStatus.STARTED if start else EffectStatus.INTENT
    fresh = tx.execute(
        "INSERT INTO effects (thread_id, call_id, run_id, tool, digest, preview, status, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread_id, call_id) DO NOTHING RETURNING call_id",
        (
            call.thread_id,
            call.call_id,
            call.run_id,
            call.tool,
            call.digest,
            plain(call.preview),
            first.value,
            stamp(now),
        ),
    )
    if fresh:
        return Fresh()
    effect = _must_find(tx, call.thread_id, call.call_id)
    if effect.digest != call.digest:
        raise EffectConflictError(call.thread_id, call.call_id, "it was journalled with another tool or other arguments")
    if effect.status is EffectStatus.DONE:
        return Done(effect.result)
    if effect.status is EffectStatus.INTENT:
        _set(tx, effect, first, call.run_id, now)
        return Fresh()
    _set(tx, effect, EffectStatus.UNKNOWN, effect.run_id, now)
    return Unknown(_must_find(tx, call.thread_id, call.call_id))


def _advance(
    tx: Tx,
    key: tuple[str, str],
    fence: Fence | None,
    then: EffectStatus,
    values: tuple[str | None, str | None],
    resolved_by: str,
    only: EffectStatus | None,
    now: datetime,
) -> EffectRow:
    thread_id, call_id = key
    _check(tx, thread_id, fence, now)
    effect = _must_find(tx, thread_id, call_id)
    if then not in EFFECT_NEXT[effect.status] or only not in {None, effect.status}:
        raise EffectConflictError(thread_id, call_id, f"it is {effect.status.value} and cannot become {then.value} now")
    scope, result = values
    tx.execute(
        "UPDATE effects SET status = ?, scope = COALESCE(?, scope), result = COALESCE(?, result), resolved_by = ?,"
        " updated_at = ? WHERE thread_id = ? AND call_id = ?",
        (then.value, scope, result, resolved_by, stamp(now), thread_id, call_id),
    )
    return _must_find(tx, thread_id, call_id)


def _identify(tx: Tx, thread_id: str, call_id: str, fence: Fence | None, scope: str, now: datetime) -> None:
    _check(tx, thread_id, fence, now)
    tx.execute(
        "UPDATE effects SET scope = ?, updated_at = ? WHERE thread_id = ? AND call_id = ? AND status = 'started'",
        (scope, stamp(now), thread_id, call_id),
    )


def _mark_unknown(tx: Tx, thread_id: str, now: datetime) -> tuple[EffectRow, ...]:
    _check(tx, thread_id, None, now)
    tx.execute(
        "UPDATE effects SET status = 'unknown', updated_at = ? WHERE thread_id = ? AND status = 'started'",
        (stamp(now), thread_id),
    )
    return _effects(tx, thread_id, " AND t.status = 'unknown'")


def _effects(tx: Tx, thread_id: str, where: str) -> tuple[EffectRow, ...]:
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM effects t WHERE t.thread_id = ?{where} ORDER BY t.effect_no",
        (thread_id,),
    )
    return tuple(_effect_of(row) for row in rows)


def _set(tx: Tx, effect: EffectRow, status: EffectStatus, run_id: str, now: datetime) -> None:
    tx.execute(
        "UPDATE effects SET status = ?, run_id = ?, updated_at = ? WHERE thread_id = ? AND call_id = ?",
        (status.value, run_id, stamp(now), effect.thread_id, effect.call_id),
    )


def _check(tx: Tx, thread_id: str, fence: Fence | None, now: datetime) -> None:
    check_fence(ensure_thread(tx, thread_id, now, lock=tx.for_share), fence)


def _find(tx: Tx, thread_id: str, call_id: str) -> EffectRow | None:
    row = one(
        tx.execute(
            f"SELECT {COLUMNS} FROM effects t WHERE t.thread_id = ? AND t.call_id = ?{tx.for_update}", (thread_id, call_id)
        )
    )
    return None if row is None else _effect_of(row)


def _must_find(tx: Tx, thread_id: str, call_id: str) -> EffectRow:
    effect = _find(tx, thread_id, call_id)
    if effect is None:
        raise EffectConflictError(thread_id, call_id, "it is not in the journal")
    return effect


def _effect_of(row: Row) -> EffectRow:
    return EffectRow(
        thread_id=row[0],
        call_id=row[1],
        run_id=row[2],
        tool=row[3],
        digest=row[4],
        preview=row[5],
        status=EffectStatus(row[6]),
        scope=None if row[7] is None else json.loads(row[7]),
        result=None if row[8] is None else json.loads(grown(row[8])),
        resolved_by=row[9],
        updated_at=instant(row[10]),
    )
