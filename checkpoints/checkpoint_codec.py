"""Between LangGraph's checkpoints and the store's rows: what is packed how, and how a row is opened again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    writes_sort_key,
)

from checkpoints.checkpoint_rows import CheckpointRow, blobs_of, writes_of
from checkpoints.packing import Sealer, long_id, short_id
from checkpoints.serializer import StrictSerializer, TypeRefusedError
from checkpoints.store_errors import IntegrityError
from checkpoints.tx import Tx
from checkpoints.versions import packed, unpacked

BLOB_BYTES = 768
"""Values from this size on are stored apart, so that one that does not change is not written again each step."""

REMEMBERED_LANES = 512

Entry = tuple[Any, ...]
"""A channel value in a checkpoint's body: (channel, type, bytes), or (channel, type, digest, None) for a blob."""


class CheckpointCodec:
    """Packs and opens the rows of one store.

    Args:
        sealer: The store's packer.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        # What the newest checkpoint of a lane holds, so that unchanged values are neither encoded nor stored again.
        self._held: OrderedDict[tuple[str, str], tuple[str, dict[str, tuple[Any, Entry]]]] = OrderedDict()

    def pack_checkpoint(
        self,
        serde: StrictSerializer,
        place: tuple[str, str],
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any],
    ) -> tuple[bytes, list[tuple[bytes, bytes]], dict[str, tuple[Any, Entry]]]:
        """A checkpoint's body, its new blobs, and what `remember` takes once it is stored."""
        held_id, held = self._held.get(place, ("", {}))
        held = held if held_id == parent else {}
        entries: dict[str, tuple[Any, Entry]] = {}
        blobs: list[tuple[bytes, bytes]] = []
        versions = checkpoint["channel_versions"]
        for channel, value in checkpoint["channel_values"].items():
            version = versions.get(channel)
            known = held.get(channel)
            if known is not None and version is not None and known[0] == version:
                entries[channel] = known
            else:
                entries[channel] = (version, self._entry(serde, place, channel, value, blobs))
        body = self._sealer.pack(
            [
                checkpoint["v"],
                _short_time(checkpoint["ts"]),
                serde.dumps_typed(metadata)[1],
                [entry for _, entry in entries.values()],
                packed(versions),
                {node: packed(seen) for node, seen in checkpoint["versions_seen"].items()},
                checkpoint.get("updated_channels"),
            ],
            "checkpoint",
            *place,
            short_id(checkpoint["id"]),
            b"" if parent is None else short_id(parent),
        )
        return body, blobs, entries

    def remember(self, place: tuple[str, str], checkpoint_id: str, entries: dict[str, tuple[Any, Entry]]) -> None:
        """Notes what a lane's newest stored checkpoint holds."""
        self._held[place] = (checkpoint_id, entries)
        self._held.move_to_end(place)
        if len(self._held) > REMEMBERED_LANES:
            self._held.popitem(last=False)

    def forget(self) -> None:
        """Drops what is remembered, because rows were deleted."""
        self._held.clear()

    def pack_writes(
        self,
        serde: StrictSerializer,
        place: tuple[str, str],
        checkpoint_id: str,
        writes: Sequence[tuple[str, Any]],
        task: tuple[str, str],
        run_id: str,
    ) -> bytes:
        """The body of one task's writes; `run_id` is LangGraph's, where its server gave one."""
        task_id, task_path = task
        packed = [
            [WRITES_IDX_MAP.get(channel, index), channel, *serde.dumps_typed(value)]
            for index, (channel, value) in enumerate(writes)
        ]
        body = [short_id(task_id), task_path, packed, *([run_id] if run_id else [])]
        return self._sealer.pack(body, "writes", *place, short_id(checkpoint_id))

    def open_checkpoint(self, serde: StrictSerializer, tx: Tx, row: CheckpointRow) -> CheckpointTuple:
        """The checkpoint with its pending writes.

        Raises:
            IntegrityError: A row is not what was stored there, or names a type that may not be loaded.
        """
        checkpoint, metadata = self.open_body(serde, tx, row)
        return CheckpointTuple(
            _config(row, row.checkpoint_id),
            checkpoint,
            metadata,
            None if row.parent_id is None else _config(row, row.parent_id),
            self.open_writes(serde, tx, row),
        )

    def open_body(self, serde: StrictSerializer, tx: Tx, row: CheckpointRow) -> tuple[Checkpoint, CheckpointMetadata]:
        """The checkpoint and its metadata."""
        version, ts, meta, entries, versions, seen, updated = self.unseal(row)
        checkpoint = Checkpoint(
            v=version,
            id=long_id(row.checkpoint_id),
            ts=_long_time(ts),
            channel_values=self.values(serde, tx, row, entries),
            channel_versions=cast(ChannelVersions, unpacked(versions)),
            versions_seen={node: unpacked(by_channel) for node, by_channel in seen.items()},
            updated_channels=updated,
        )
        return checkpoint, self._load(serde, row, ("msgpack", meta))

    def unseal(self, row: CheckpointRow) -> list[Any]:
        """The raw parts of a checkpoint's body."""
        parent = row.parent_id or b""
        place = (row.thread_id, row.ns, row.checkpoint_id, parent)
        return cast("list[Any]", self._sealer.unpack(row.body, "checkpoint", *place))

    def values(self, serde: StrictSerializer, tx: Tx, row: CheckpointRow, entries: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The channel values of the given entries."""
        wanted = [entry[2] for entry in entries if len(entry) == 4]
        blobs = blobs_of(tx, row.thread_no, wanted) if wanted else {}
        return {entry[0]: self._load(serde, row, (entry[1], self._bytes(row, entry, blobs))) for entry in entries}

    def metadata(self, serde: StrictSerializer, row: CheckpointRow) -> Mapping[str, Any]:
        """The checkpoint's metadata alone."""
        return cast("Mapping[str, Any]", self._load(serde, row, ("msgpack", self.unseal(row)[2])))

    def delta_channels(self, serde: StrictSerializer, row: CheckpointRow) -> set[str]:
        """The channels whose value at this checkpoint is rebuilt from its ancestors."""
        return set(self.metadata(serde, row).get("counters_since_delta_snapshot") or ())

    def stored_channels(self, row: CheckpointRow) -> set[str]:
        """The channels whose value the checkpoint holds itself."""
        return {entry[0] for entry in self.unseal(row)[3]}

    def digests(self, row: CheckpointRow) -> list[bytes]:
        """The blobs that the checkpoint refers to."""
        return [entry[2] for entry in self.unseal(row)[3] if len(entry) == 4]

    def run_of_writes(self, row: CheckpointRow, body: bytes) -> str:
        """The LangGraph run that made a checkpoint's writes, "" when it is not known."""
        parts = self._sealer.unpack(body, "writes", row.thread_id, row.ns, row.checkpoint_id)
        return str(parts[3]) if len(parts) > 3 else ""

    def move(self, body: bytes, old: tuple[Any, ...], new: tuple[Any, ...]) -> bytes:
        """A body of one place, checked and sealed for another; places are as they were packed."""
        return self._sealer.close(self._sealer.open(body, old), new)

    @staticmethod
    def id_of(row: CheckpointRow) -> str:
        """The checkpoint's id as LangGraph knows it."""
        return long_id(row.checkpoint_id)

    def open_writes(
        self, serde: StrictSerializer, tx: Tx, row: CheckpointRow, only: frozenset[str] | None = None
    ) -> list[PendingWrite]:
        """The checkpoint's pending writes in LangGraph's order, of all channels or only of some.

        A task's write of an ordinary channel counts the first time, one of a special channel (error, interrupt, resume)
        the last time, as in LangGraph's own savers.
        """
        place = (row.thread_id, row.ns, row.checkpoint_id)
        merged: dict[tuple[str, int], tuple[str, str, tuple[str, bytes]]] = {}
        for body in writes_of(tx, row.lane, row.checkpoint_id):
            task, path, writes, *_ = self._sealer.unpack(body, "writes", *place)
            replaces = all(channel in WRITES_IDX_MAP for _, channel, _, _ in writes)
            for index, channel, kind, data in writes:
                key = (long_id(task), index)
                if replaces or key not in merged:
                    merged[key] = (path, channel, (kind, data))
        ordered = sorted(merged.items(), key=lambda item: writes_sort_key(item[1][0], *item[0]))
        return [
            (task, channel, self._load(serde, row, data))
            for (task, _), (_, channel, data) in ordered
            if only is None or channel in only
        ]

    def _entry(
        self, serde: StrictSerializer, place: tuple[str, str], channel: str, value: Any, blobs: list[tuple[bytes, bytes]]
    ) -> Entry:
        thread_id, ns = place
        kind, data = serde.dumps_typed(value)
        if len(data) < BLOB_BYTES or ":" in ns:  # a subgraph call's lane goes as a whole, so its values go with it
            return (channel, kind, data)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        blobs.append((digest, self._sealer.pack(data, "blob", thread_id, digest)))
        return (channel, kind, digest, None)

    def _bytes(self, row: CheckpointRow, entry: Sequence[Any], blobs: Mapping[bytes, bytes]) -> bytes:
        if len(entry) == 3:
            return cast(bytes, entry[2])
        sealed = blobs.get(entry[2])
        if sealed is None:
            raise IntegrityError("checkpoint", row.thread_id, f"the value of channel {entry[0]} is missing")
        return cast(bytes, self._sealer.unpack(sealed, "blob", row.thread_id, entry[2]))

    @staticmethod
    def _load(serde: StrictSerializer, row: CheckpointRow, data: tuple[str, bytes]) -> Any:
        try:
            return serde.loads_typed(data)
        except TypeRefusedError as error:
            if error.missing:
                raise
            raise IntegrityError("checkpoint", row.thread_id, f"it names the type {error.type_name}") from error


def _config(row: CheckpointRow, checkpoint_id: bytes) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": row.thread_id,
            "checkpoint_ns": row.ns,
            "checkpoint_id": long_id(checkpoint_id),
        }
    }


def _short_time(ts: str) -> int | str:
    """A time stamp as microseconds where that loses nothing."""
    try:
        parsed = datetime.fromisoformat(ts)
        micros = round(parsed.timestamp() * 1_000_000)
    except (TypeError, ValueError):
        return ts
    return micros if _long_time(micros) == ts else ts


def _long_time(value: int | str) -> str:
    if isinstance(value, str):
        return value
    seconds, micros = divmod(value, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros).isoformat()
