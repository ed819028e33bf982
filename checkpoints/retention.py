"""How large the store is, what may go, and giving the space back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from checkpoints.artifacts import Artifacts
from checkpoints.run_errors import ThreadBusyError
from checkpoints.saver import ThreadSaver
from checkpoints.store import Store
from checkpoints.threads import load_thread
from checkpoints.tx import Tx, stamp

BY_KIND: Mapping[str, str] = {
    "checkpoints": "SELECT COALESCE(SUM(LENGTH(c.body) + 48), 0) FROM checkpoints c JOIN lanes l ON l.lane = c.lane{}",
    "writes": "SELECT COALESCE(SUM(LENGTH(w.body) + 48), 0) FROM writes w JOIN lanes l ON l.lane = w.lane{}",
    "values": "SELECT COALESCE(SUM(LENGTH(l.body) + 48), 0) FROM blobs l{}",
    "events": (
        "SELECT COALESCE(SUM(LENGTH(e.payload) + 48), 0) FROM events e JOIN runs r ON r.run_no = e.run_no"
        " JOIN threads l ON l.thread_id = r.thread_id{}"
    ),
    "artifacts": "SELECT COALESCE(SUM(a.size), 0) FROM artifacts a JOIN threads l ON l.thread_id = a.thread_id{}",
}
"""Bytes of content by kind, with an estimate of 48 a row for keys and headers; `{}` takes a thread's condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUsage:
    """A thread's bytes by kind (`checkpoints`, `writes`, `values`, `events`, `artifacts`)."""

    thread_id: str
    title: str
    bytes_by_kind: Mapping[str, int]

    @property
    def total(self) -> int:
        """All kinds together."""
        return sum(self.bytes_by_kind.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUsage:
    """The store's bytes: as the database counts its own size, by kind, and of the largest threads."""

    database_bytes: int
    bytes_by_kind: Mapping[str, int]
    threads: int
    largest: tuple[ThreadUsage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What pruning did. `kept_busy` are threads that were due and stay, because a run or a person needs them."""

    deleted: tuple[str, ...]
    thinned_checkpoints: int
    kept_busy: tuple[str, ...]


class Retention:
    """Upkeep of a whole store.

    Args:
        store: An open store.
        saver: A saver of that store.
        artifacts: Its artifact folder; files that no thread mentions any more are swept with what mentioned them.
    """

    def __init__(self, store: Store, saver: ThreadSaver, artifacts: Artifacts | None = None) -> None:
        self._store = store
        self._saver = saver
        self._artifacts = artifacts

    async def usage(self, *, largest: int = 10) -> StoreUsage:
        """Counts bytes. Reads every row's length: seconds on a store of gigabytes."""
        return await self._store.read(_usage, self._store.dialect, largest)

    async def prune(
        self, *, older_than: timedelta | None = None, keep_newest: int | None = None, thin: bool = False
    ) -> PruneReport:
        """Deletes whole threads by age (last touched) and by count; with `thin`, keeps only what the others need.

        A thread with a live run, a pending approval or an unsettled effect is never deleted.
        """
        now = self._store.clock.now()
        await self._store.write(_forget_owners, now)
        due = await self._store.read(_due, None if older_than is None else now - older_than, keep_newest)
        deleted = [thread_id for thread_id, needed in due if not needed]
        for thread_id in deleted:
            await self.delete_thread(thread_id)
        thinned = 0
        if thin:
            for thread_id in await self._store.read(_idle_threads):
                thinned += await self._saver.athin(thread_id)
        if self._artifacts is not None:
            await self._artifacts.sweep()
        kept = tuple(thread_id for thread_id, needed in due if needed)
        return PruneReport(deleted=tuple(deleted), thinned_checkpoints=thinned, kept_busy=kept)

    async def delete_thread(self, thread_id: str) -> None:
        """Deletes everything of a thread: checkpoints, runs, events, approvals, effects, its rules and artifact mentions.

        Raises:
            ThreadBusyError: A run is live on it.
        """
        await self._saver.adelete_thread(thread_id)
        await self._store.write(_delete_rest, thread_id)

    async def compact(self) -> None:
        """Gives deleted space back to the file system. Writes wait meanwhile; needs as much free space as the store has."""
        await self._store.compact()


def _usage(tx: Tx, dialect: str, largest: int) -> StoreUsage:
    pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    [(size,)] = tx.execute(pages if dialect == "sqlite" else "SELECT pg_database_size(current_database())")
    by_kind = {kind: int(tx.execute(sql.format(""))[0][0]) for kind, sql in BY_KIND.items()}
    threads = tx.execute("SELECT thread_no, thread_id, title FROM threads")
    usages = [
        ThreadUsage(
            thread_id=thread_id,
            title=title,
            bytes_by_kind={
                kind: int(tx.execute(sql.format(" WHERE l.thread_no = ?"), (number,))[0][0]) for kind, sql in BY_KIND.items()
            },
        )
        for number, thread_id, title in threads
    ]
    usages.sort(key=lambda usage: usage.total, reverse=True)
    return StoreUsage(database_bytes=int(size), bytes_by_kind=by_kind, threads=len(usages), largest=tuple(usages[:largest]))


def _due(tx: Tx, before: datetime | None, keep_newest: int | None) -> list[tuple[str, bool]]:
    """Threads that age or count would delete, each with whether something still needs it."""
    rows = tx.execute(
        "SELECT t.thread_id, t.updated_at,"
        " EXISTS (SELECT 1 FROM runs r WHERE r.thread_id = t.thread_id AND r.status = 'running')"
        " OR EXISTS (SELECT 1 FROM approvals a WHERE a.thread_id = t.thread_id AND a.status = 'pending')"
        " OR EXISTS (SELECT 1 FROM effects e WHERE e.thread_id = t.thread_id AND e.status IN ('started', 'unknown'))"
        " FROM threads t ORDER BY t.updated_at DESC, t.thread_no DESC"
    )
    return [
        (thread_id, bool(needed))
        for place, (thread_id, touched, needed) in enumerate(rows)
        if (before is not None and touched < stamp(before)) or (keep_newest is not None and place >= keep_newest)
    ]


def _idle_threads(tx: Tx) -> list[str]:
    sql = "SELECT t.thread_id FROM threads t WHERE NOT EXISTS"
    rows = tx.execute(f"{sql} (SELECT 1 FROM runs r WHERE r.thread_id = t.thread_id AND r.status = 'running')")
    return [thread_id for (thread_id,) in rows]


def _forget_owners(tx: Tx, now: datetime) -> None:
    """Owners that died without being struck off, a week ago at least, and own nothing."""
    tx.execute(
        "DELETE FROM owners WHERE beaten_at < ? AND owner_id NOT IN (SELECT owner_id FROM runs WHERE status = 'running')",
        (stamp(now - timedelta(days=7)),),
    )


def _delete_rest(tx: Tx, thread_id: str) -> None:
    thread = load_thread(tx, thread_id, lock=tx.for_update)
    if thread is not None and thread.live_run_id:
        raise ThreadBusyError(thread_id, thread.live_run_id)
    tx.execute("DELETE FROM events WHERE run_no IN (SELECT run_no FROM runs WHERE thread_id = ?)", (thread_id,))
    tx.execute("DELETE FROM notes WHERE run_id IN (SELECT run_id FROM runs WHERE thread_id = ?)", (thread_id,))
    for table in ("runs", "approvals", "effects", "rules", "artifacts", "threads"):
        tx.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread_id,))
