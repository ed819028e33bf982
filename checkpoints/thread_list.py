"""Threads as listings and quotes see them."""

from __future__ import annotations

from checkpoints.packing import long_id
from checkpoints.records import ThreadInfo
from checkpoints.tx import Row, Tx, instant, one

SELECT = (
    "SELECT t.thread_id, t.fence,"
    " (SELECT c.checkpoint_id FROM lanes l JOIN checkpoints c ON c.seq = l.head"
    "  WHERE l.thread_no = t.thread_no AND l.ns = ''),"
    " (SELECT r.run_id FROM runs r WHERE r.thread_id = t.thread_id AND r.status = 'running'),"
    " t.graph_version, t.title, t.created_at, t.updated_at FROM threads t"
)


def thread_info(tx: Tx, thread_id: str) -> ThreadInfo | None:
    """One thread, or None."""
    row = one(tx.execute(f"{SELECT} WHERE t.thread_id = ?", (thread_id,)))
    return None if row is None else _info_of(row)


def list_threads(tx: Tx, limit: int, before: str) -> tuple[ThreadInfo, ...]:
    """Threads, last touched first, from behind the named one on."""
    where = ""
    params: tuple[str, ...] = ()
    if before:
        where = " WHERE (t.updated_at, t.thread_no) < (SELECT b.updated_at, b.thread_no FROM threads b WHERE b.thread_id = ?)"
        params = (before,)
    rows = tx.execute(f"{SELECT}{where} ORDER BY t.updated_at DESC, t.thread_no DESC LIMIT ?", (*params, limit))
    return tuple(_info_of(row) for row in rows)


def _info_of(row: Row) -> ThreadInfo:
    return ThreadInfo(
        thread_id=row[0],
        fence=row[1],
        checkpoint_id="" if row[2] is None else long_id(row[2]),
        live_run_id=row[3] or "",
        graph_version=row[4],
        title=row[5],
        created_at=instant(row[6]),
        updated_at=instant(row[7]),
    )
