"""One thread as one file: to keep it, to move it to another store, to look at it elsewhere.

The file is a first line with its format, a second with the SHA-256 of the rest, and the rest: compressed msgpack. It is
checked whole before anything is stored, and a file that was changed or cut is refused whole. It is as readable as the
store is; it holds what the thread holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import zlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import ormsgpack

from checkpoints.errors import CheckreinError, ConflictError, UsageError
from checkpoints.packing import Sealer, long_id
from checkpoints.run_errors import ThreadBusyError
from checkpoints.store import Store
from checkpoints.threads import ensure_thread, load_thread
from checkpoints.tx import Tx, stamp

FORMAT = b"checkrein-thread 1\n"

TABLES: Mapping[str, tuple[str, ...]] = {
    "effects": (
        "call_id",
        "run_id",
        "tool",
        "digest",
        "preview",
        "status",
        "scope",
        "result",
        "resolved_by",
        "updated_at",
    ),
    "approvals": (
        "interrupt_id",
        "run_id",
        "checkpoint_id",
        "checkpoint_ns",
        "value",
        "digests",
        "status",
        "decisions",
        "decided_by",
        "decided_run_id",
        "created_at",
        "expires_at",
        "ended_at",
        "reason",
    ),
}
RUN_COLUMNS = (
    "run_id",
    "owner_id",
    "subject_id",
    "parent_run_id",
    "resumes_run_id",
    "root_run_id",
    "depth",
    "status",
    "fence",
    "created_at",
    "finished_at",
    "deadline",
    "cause",
    "cause_reason",
    "cause_at",
    "receipt",
    "payload",
    "last_seq",
)


class UnknownThreadError(UsageError):
    """There is no thread of this id."""

    code = "unknown_thread"
    hint = "List the threads to see which there are."

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(f"There is no thread {thread_id}.")


class ThreadExistsError(ConflictError):
    """The store has the thread that was to be imported."""

    code = "thread_exists"
    hint = "Import it under another id."

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(f"Thread {thread_id} is in the store already.")


class DamagedExportError(CheckreinError):
    """The file is no export, or not as it was written. Nothing of it was stored."""

    code = "damaged_export"
    hint = "Export the thread again, or take another copy of the file."

    def __init__(self, path: Path, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(f"{path} was not imported: {detail}.")


async def export_thread(store: Store, thread_id: str, path: Path) -> None:
    """Writes a thread to a file, whole or not at all, readable by this user only.

    Raises:
        UnknownThreadError: No such thread.
        ThreadBusyError: A run is live on it.
        IntegrityError: One of its rows is damaged.
    """
    content = await store.read(_collect, thread_id, store.sealer)
    await asyncio.to_thread(_write_file, path, content)


async def import_thread(store: Store, path: Path, *, thread_id: str = "") -> str:
    """Stores an exported thread, under its own id or another one, and gives the id.

    Its runs and events come along unless the store knows their ids; its fence starts above the exported one.

    Raises:
        DamagedExportError: The file is not as it was written.
        ThreadExistsError: The store has a thread of this id.
    """
    content = await asyncio.to_thread(_read_file, path)
    target = thread_id or str(content["thread_id"])
    try:
        await store.write(_restore, content, target, store.sealer, store.clock.now())
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedExportError(path, f"its content is not what this version knows ({error})") from error
    return target


def _write_file(path: Path, content: Mapping[str, Any]) -> None:
    data = zlib.compress(ormsgpack.packb(content))
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(FORMAT + hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _read_file(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    if not raw.startswith(FORMAT):
        raise DamagedExportError(path, "it is no export of a thread, or of a format that this version does not know")
    digest, _, data = raw[len(FORMAT) :].partition(b"\n")
    if hashlib.sha256(data).hexdigest().encode() != digest:
        raise DamagedExportError(path, "its content does not fit its digest")
    try:
        content = ormsgpack.unpackb(zlib.decompress(data))
    except (zlib.error, ValueError) as error:
        raise DamagedExportError(path, f"it cannot be decoded ({error})") from error
    if not isinstance(content, dict):
        raise DamagedExportError(path, "it holds no thread")
    return content


def _collect(tx: Tx, thread_id: str, sealer: Sealer) -> dict[str, Any]:
    thread = load_thread(tx, thread_id)
    if thread is None:
        raise UnknownThreadError(thread_id)
    if thread.live_run_id:
        raise ThreadBusyError(thread_id, thread.live_run_id)
    blobs = tx.execute("SELECT digest, body FROM blobs WHERE thread_no = ? ORDER BY seq", (thread.number,))
    lanes = tx.execute("SELECT lane, ns FROM lanes WHERE thread_no = ? ORDER BY lane", (thread.number,))
    return {
        "thread_id": thread_id,
        "fence": thread.fence,
        "graph_version": thread.graph_version,
        "title": thread.title,
        "blobs": [(digest, sealer.open(body, ("blob", thread_id, digest))) for digest, body in blobs],
        "lanes": [_collect_lane(tx, lane, ns, thread_id, sealer) for lane, ns in lanes],
        "runs": _collect_runs(tx, thread_id),
        **{table: _collect_table(tx, table, columns, thread_id) for table, columns in TABLES.items()},
    }


def _collect_lane(tx: Tx, lane: int, ns: str, thread_id: str, sealer: Sealer) -> dict[str, Any]:
    rows = tx.execute("SELECT checkpoint_id, parent_id, body FROM checkpoints WHERE lane = ? ORDER BY seq", (lane,))
    writes = tx.execute("SELECT checkpoint_id, body FROM writes WHERE lane = ? ORDER BY seq", (lane,))
    return {
        "ns": ns,
        "checkpoints": [
            (key, parent, sealer.open(body, ("checkpoint", thread_id, ns, key, parent or b""))) for key, parent, body in rows
        ],
        "writes": [(key, sealer.open(body, ("writes", thread_id, ns, key))) for key, body in writes],
    }


def _collect_table(tx: Tx, table: str, columns: tuple[str, ...], thread_id: str) -> list[tuple[Any, ...]]:
    return tx.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE thread_id = ?", (thread_id,))


def _collect_runs(tx: Tx, thread_id: str) -> list[dict[str, Any]]:
    runs = tx.execute(f"SELECT run_no, {', '.join(RUN_COLUMNS)} FROM runs WHERE thread_id = ? ORDER BY run_no", (thread_id,))
    return [
        {
            "run": run,
            "events": tx.execute("SELECT seq, kind, at, payload FROM events WHERE run_no = ? ORDER BY seq", (number,)),
            "notes": tx.execute("SELECT kind, body, at FROM notes WHERE run_id = ? ORDER BY note_no", (run[0],)),
        }
        for number, *run in runs
    ]


def _restore(tx: Tx, content: Mapping[str, Any], thread_id: str, sealer: Sealer, now: datetime) -> None:
    if load_thread(tx, thread_id) is not None:
        raise ThreadExistsError(thread_id)
    thread = ensure_thread(tx, thread_id, now, lock=tx.for_update)
    tx.execute(
        "UPDATE threads SET fence = ?, graph_version = ?, title = ?, updated_at = ? WHERE thread_no = ?",
        (content["fence"] + 1, content["graph_version"], content["title"], stamp(now), thread.number),
    )
    for digest, body in content["blobs"]:
        sealed = sealer.close(body, ("blob", thread_id, digest))
        tx.execute("INSERT INTO blobs (thread_no, digest, body) VALUES (?, ?, ?)", (thread.number, digest, sealed))
    for lane in content["lanes"]:
        _restore_lane(tx, lane, thread.number, thread_id, sealer)
    for table, columns in TABLES.items():
        for row in content[table]:
            _insert(tx, table, ("thread_id", *columns), (thread_id, *row))
    for entry in content["runs"]:
        _restore_run(tx, entry, thread_id)


def _restore_lane(tx: Tx, lane: Mapping[str, Any], thread_no: int, thread_id: str, sealer: Sealer) -> None:
    ns = lane["ns"]
    [(number,)] = tx.execute("INSERT INTO lanes (thread_no, ns) VALUES (?, ?) RETURNING lane", (thread_no, ns))
    for key, parent, body in lane["checkpoints"]:
        long_id(key)  # An id that cannot be one is refused here.
        sealed = sealer.close(body, ("checkpoint", thread_id, ns, key, parent or b""))
        [(seq,)] = tx.execute(
            "INSERT INTO checkpoints (lane, checkpoint_id, parent_id, body) VALUES (?, ?, ?, ?) RETURNING seq",
            (number, key, parent, sealed),
        )
        tx.execute("UPDATE lanes SET head = ? WHERE lane = ?", (seq, number))
    for key, body in lane["writes"]:
        sealed = sealer.close(body, ("writes", thread_id, ns, key))
        tx.execute("INSERT INTO writes (lane, checkpoint_id, body) VALUES (?, ?, ?)", (number, key, sealed))


def _restore_run(tx: Tx, entry: Mapping[str, Any], thread_id: str) -> None:
    run = entry["run"]
    if tx.execute("SELECT 1 FROM runs WHERE run_id = ?", (run[0],)):
        return
    _insert(tx, "runs", ("thread_id", *RUN_COLUMNS), (thread_id, *run))
    [(number,)] = tx.execute("SELECT run_no FROM runs WHERE run_id = ?", (run[0],))
    for event in entry["events"]:
        _insert(tx, "events", ("run_no", "seq", "kind", "at", "payload"), (number, *event))
    for note in entry["notes"]:
        _insert(tx, "notes", ("run_id", "kind", "body", "at"), (run[0], *note))


def _insert(tx: Tx, table: str, columns: tuple[str, ...], row: tuple[Any, ...]) -> None:
    marks = ", ".join("?" for _ in columns)
    tx.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", row)
