"""Deleting, thinning and copying checkpoints without cutting a chain that something still needs.

A delta channel's value is rebuilt from a checkpoint's ancestors back to the nearest one that stored it, so a kept checkpoint
keeps that much of its chain alive. Which channels those are stands in the checkpoint's own metadata
(`counters_since_delta_snapshot`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from checkpoints.checkpoint_codec import CheckpointCodec
from checkpoints.checkpoint_rows import CHECKPOINT_COLUMNS, CHECKPOINT_TABLES, CheckpointRow, parent_of
from checkpoints.packing import short_id
from checkpoints.serializer import StrictSerializer
from checkpoints.threads import ThreadRow, check_fence, ensure_thread, load_thread
from checkpoints.tx import Tx, stamp


class Upkeep:
    """Operations over whole threads, each to be run in one transaction. All refuse a thread with a live run.

    Args:
        codec: Opens and packs the store's rows.
        serde: Reads metadata.
    """

    def __init__(self, codec: CheckpointCodec, serde: StrictSerializer) -> None:
        self._codec = codec
        self._serde = serde

    def delete(self, tx: Tx, thread_id: str) -> None:
        """Deletes a thread's checkpoints. Its row stays, since its fence may never go back.

        Raises:
            ThreadBusyError: A run is live.
        """
        thread = _idle_thread(tx, thread_id)
        if thread is None:
            return
        for lane, _ in _lanes(tx, thread):
            _drop_lane(tx, lane)
        tx.execute("DELETE FROM blobs WHERE thread_no = ?", (thread.number,))

    def keep_latest(self, tx: Tx, thread_id: str) -> int:
        """Keeps the newest checkpoint of every namespace, those that pending approvals name, and what these need.

        Namespaces of subgraph calls (they end in a task id) go when the checkpoint that they were called from goes. Gives the
        number of checkpoints deleted.

        Raises:
            ThreadBusyError: A run is live.
        """
        thread = _idle_thread(tx, thread_id)
        if thread is None:
            return 0
        lanes = sorted(_lanes(tx, thread), key=lambda lane: len(lane[1]))
        kept_ids: set[str] = set()
        deleted = 0
        for lane, ns in lanes:
            rows = _rows(tx, lane)
            wanted = self._wanted(tx, rows, thread_id, ns)
            if _is_call(ns) and not self._called_from(rows[-1:], kept_ids):
                wanted = set()
            deleted += len(rows) - len(wanted)
            kept_ids |= {self._codec.id_of(row) for row in rows if row.seq in wanted}
            if wanted:
                _drop(tx, [row for row in rows if row.seq not in wanted])
            else:
                _drop_lane(tx, lane)
        self._sweep_blobs(tx, thread)
        return deleted

    def delete_runs(self, tx: Tx, run_ids: Collection[str]) -> None:
        """Deletes what runs of LangGraph's server wrote (its `run_id` in metadata), but for links of a surviving chain.

        Raises:
            ThreadBusyError: A run is live on a thread that one of them wrote.
        """
        lanes: dict[int, str] = {}
        for run_id in run_ids:
            sql = "SELECT r.lane, t.thread_id FROM lane_runs r JOIN lanes l ON l.lane = r.lane"
            lanes |= dict(tx.execute(f"{sql} JOIN threads t ON t.thread_no = l.thread_no WHERE r.run_id = ?", (run_id,)))
            tx.execute("DELETE FROM lane_runs WHERE run_id = ?", (run_id,))
        threads = {thread_id: _idle_thread(tx, thread_id) for thread_id in set(lanes.values())}
        for lane in lanes:
            self._delete_runs_in(tx, lane, set(run_ids))
        for thread in threads.values():
            if thread is not None:
                self._sweep_blobs(tx, thread)

    def copy(self, tx: Tx, source_id: str, target_id: str, now: datetime) -> None:
        """Copies every checkpoint, with its writes and the effect journal, to another thread, sealed anew.

        An effect that was started and has no result is unknown in the copy.

        Raises:
            ThreadBusyError: A run is live on the target.
            IntegrityError: A row of the source is damaged; nothing is copied.
        """
        source = load_thread(tx, source_id)
        if source is None:
            return
        target = ensure_thread(tx, target_id, now, lock=tx.for_update)
        check_fence(target, None)
        tx.execute(
            "UPDATE threads SET graph_version = ?, title = ? WHERE thread_no = ?",
            (source.graph_version, source.title, target.number),
        )
        for digest, body in tx.execute("SELECT digest, body FROM blobs WHERE thread_no = ?", (source.number,)):
            moved = self._codec.move(body, ("blob", source_id, digest), ("blob", target_id, digest))
            tx.execute(
                "INSERT INTO blobs (thread_no, digest, body) VALUES (?, ?, ?) ON CONFLICT (thread_no, digest) DO NOTHING",
                (target.number, digest, moved),
            )
        for lane, ns in _lanes(tx, source):
            self._copy_lane(tx, lane, ns, source_id, target)
        _copy_effects(tx, source_id, target_id, now)

    def _wanted(self, tx: Tx, rows: list[CheckpointRow], thread_id: str, ns: str) -> set[int]:
        """The seqs to keep in a lane: its newest, what approvals wait on, and their chains."""
        waiting = tx.execute(
            "SELECT checkpoint_id FROM approvals WHERE thread_id = ? AND checkpoint_ns = ? AND status = 'pending'",
            (thread_id, ns),
        )
        named = {short_id(checkpoint_id) for (checkpoint_id,) in waiting}
        roots = rows[-1:] + [row for row in rows[:-1] if row.checkpoint_id in named]
        return self._with_chains(tx, roots)

    def _with_chains(self, tx: Tx, roots: Iterable[CheckpointRow]) -> set[int]:
        kept: set[int] = set()
        for root in roots:
            kept.add(root.seq)
            missing = self._codec.delta_channels(self._serde, root) - self._codec.stored_channels(root)
            row = parent_of(tx, root) if missing else None
            while row is not None and missing:
                kept.add(row.seq)
                missing -= self._codec.stored_channels(row)
                row = parent_of(tx, row)
        return kept

    def _called_from(self, newest: Iterable[CheckpointRow], kept_ids: set[str]) -> bool:
        parents = [self._codec.metadata(self._serde, row).get("parents") for row in newest]
        return any(not each or not kept_ids.isdisjoint(each.values()) for each in parents)

    def _delete_runs_in(self, tx: Tx, lane: int, run_ids: set[str]) -> None:
        rows = _rows(tx, lane)
        doomed = {row.seq for row in rows if self._codec.metadata(self._serde, row).get("run_id") in run_ids}
        needed = self._with_chains(tx, [row for row in rows if row.seq not in doomed])
        _drop(tx, [row for row in rows if row.seq in doomed - needed])
        for row in rows:
            if row.seq not in doomed:
                self._drop_writes_of_runs(tx, row, run_ids)
        tx.execute(
            "UPDATE lanes SET head = COALESCE((SELECT MAX(seq) FROM checkpoints WHERE lane = ?), 0) WHERE lane = ?",
            (lane, lane),
        )

    def _drop_writes_of_runs(self, tx: Tx, row: CheckpointRow, run_ids: set[str]) -> None:
        """What a rolled back run answered or computed on a checkpoint that stays, so that it asks again."""
        found = tx.execute("SELECT seq, body FROM writes WHERE lane = ? AND checkpoint_id = ?", (row.lane, row.checkpoint_id))
        for seq, body in found:
            if self._codec.run_of_writes(row, body) in run_ids:
                tx.execute("DELETE FROM writes WHERE seq = ?", (seq,))

    def _sweep_blobs(self, tx: Tx, thread: ThreadRow) -> None:
        used = {digest for lane, _ in _lanes(tx, thread) for row in _rows(tx, lane) for digest in self._codec.digests(row)}
        for seq, digest in tx.execute("SELECT seq, digest FROM blobs WHERE thread_no = ?", (thread.number,)):
            if digest not in used:
                tx.execute("DELETE FROM blobs WHERE seq = ?", (seq,))

    def _copy_lane(self, tx: Tx, lane: int, ns: str, source_id: str, target: ThreadRow) -> None:
        tx.execute(
            "INSERT INTO lanes (thread_no, ns) VALUES (?, ?) ON CONFLICT (thread_no, ns) DO NOTHING", (target.number, ns)
        )
        [(new_lane,)] = tx.execute("SELECT lane FROM lanes WHERE thread_no = ? AND ns = ?", (target.number, ns))
        for row in _rows(tx, lane):
            place = (ns, row.checkpoint_id, row.parent_id or b"")
            body = self._codec.move(row.body, ("checkpoint", source_id, *place), ("checkpoint", target.thread_id, *place))
            [(seq,)] = tx.execute(
                "INSERT INTO checkpoints (lane, checkpoint_id, parent_id, body) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (lane, checkpoint_id) DO UPDATE SET body = excluded.body RETURNING seq",
                (new_lane, row.checkpoint_id, row.parent_id, body),
            )
            tx.execute("UPDATE lanes SET head = ? WHERE lane = ?", (seq, new_lane))
        writes = tx.execute("SELECT checkpoint_id, body FROM writes WHERE lane = ? ORDER BY seq", (lane,))
        for checkpoint_id, body in writes:
            at = (ns, checkpoint_id)
            moved = self._codec.move(body, ("writes", source_id, *at), ("writes", target.thread_id, *at))
            tx.execute("INSERT INTO writes (lane, checkpoint_id, body) VALUES (?, ?, ?)", (new_lane, checkpoint_id, moved))


def _idle_thread(tx: Tx, thread_id: str) -> ThreadRow | None:
    thread = load_thread(tx, thread_id, lock=tx.for_update)
    if thread is not None:
        check_fence(thread, None)
    return thread


def _lanes(tx: Tx, thread: ThreadRow) -> list[tuple[int, str]]:
    return [(lane, ns) for lane, ns in tx.execute("SELECT lane, ns FROM lanes WHERE thread_no = ?", (thread.number,))]


def _rows(tx: Tx, lane: int) -> list[CheckpointRow]:
    """A lane's checkpoints, oldest first."""
    sql = f"SELECT {CHECKPOINT_COLUMNS} FROM {CHECKPOINT_TABLES} WHERE l.lane = ? ORDER BY c.seq"
    return [CheckpointRow(*row) for row in tx.execute(sql, (lane,))]


def _is_call(ns: str) -> bool:
    """True for the namespace of one call of a subgraph; a subgraph that keeps its state has one without a task id."""
    return ":" in ns.rpartition("|")[2]


def _drop(tx: Tx, rows: Iterable[CheckpointRow]) -> None:
    for row in rows:
        tx.execute("DELETE FROM writes WHERE lane = ? AND checkpoint_id = ?", (row.lane, row.checkpoint_id))
        tx.execute("DELETE FROM checkpoints WHERE seq = ?", (row.seq,))


def _drop_lane(tx: Tx, lane: int) -> None:
    for table in ("writes", "checkpoints", "lane_runs", "lanes"):
        tx.execute(f"DELETE FROM {table} WHERE lane = ?", (lane,))


def _copy_effects(tx: Tx, source_id: str, target_id: str, now: datetime) -> None:
    tx.execute(
        "INSERT INTO effects (thread_id, call_id, run_id, tool, digest, preview, status, scope, result, resolved_by,"
        " updated_at) SELECT CAST(? AS TEXT), call_id, run_id, tool, digest, preview,"
        " CASE status WHEN 'started' THEN 'unknown' ELSE status END, scope, result, resolved_by, CAST(? AS BIGINT)"
        " FROM effects WHERE thread_id = ? ON CONFLICT (thread_id, call_id) DO NOTHING",
        (target_id, stamp(now), source_id),
    )
