"""LangGraph's checkpoint saver over the store: lean rows, fenced writes, answers after the commit.

`aput` answers when its row, and everything queued before it, is on disk, so `durability="sync"` means what LangGraph
says. `aput_writes` answers when it is queued, since LangGraph awaits it before the checkpoint that follows: both then share
one commit. A queued write that fails makes the next checkpoint of its thread fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)

from checkpoints import checkpoint_rows
from checkpoints.checkpoint_codec import CheckpointCodec, Entry
from checkpoints.checkpoint_rows import Place
from checkpoints.checkpoint_views import CheckpointViews
from checkpoints.packing import short_id
from checkpoints.records import FENCE_KEY, Fence
from checkpoints.serializer import StrictSerializer
from checkpoints.store import Store
from checkpoints.tx import Tx
from checkpoints.upkeep import Upkeep
from checkpoints.versions import next_version


@dataclass(frozen=True, slots=True)
class _CheckpointToPut:
    arguments: tuple[Place, bytes, bytes | None, bytes, Sequence[tuple[bytes, bytes]], str]
    lane: tuple[str, str]
    checkpoint_id: str
    entries: dict[str, tuple[Any, Entry]]


class ThreadSaver(BaseCheckpointSaver[str]):
    """Saves the checkpoints of every thread in a store.

    The fence of a run travels as `config["configurable"][FENCE_KEY]` (a `Fence`) and is checked in the transaction of every
    write. A writer without one is allowed while no run is live on the thread.

    Args:
        store: An open store.
        serde: The serializer; strict by default.
    """

    serde: StrictSerializer

    def __init__(self, store: Store, *, serde: StrictSerializer | None = None) -> None:
        super().__init__(serde=serde or StrictSerializer())
        self.store = store
        self._codec = CheckpointCodec(store.sealer)
        self._upkeep = Upkeep(self._codec, self.serde)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after this one, in the form of LangGraph's own savers and its server."""
        following: str = next_version(current)
        return following

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint and answers when it is on disk.

        Raises:
            StaleFenceError: The run no longer owns the thread.
            ThreadBusyError: The writer has no fence and a run is live.
            SecretInStateError: The state holds a secret.
            StoreError: It could not be stored.
        """
        put = self._checkpoint_to_put(config, checkpoint, metadata)
        await self.store.write(self._put, put)
        return self._stored(put)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput` for a thread without an event loop."""
        put = self._checkpoint_to_put(config, checkpoint, metadata)
        self.store.write_blocking(self._put, put)
        return self._stored(put)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Queues a task's writes before every later checkpoint, and returns.

        They are on disk after the next checkpoint of any thread, after `Store.barrier`, or a moment later by themselves.

        Raises:
            SecretInStateError: A value holds a secret.
            StoreClosedError: The store is closed.
        """
        self.put_writes(config, writes, task_id, task_path)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """`aput_writes` for a thread without an event loop."""
        place = self._place(config)
        checkpoint_id = str(config["configurable"]["checkpoint_id"])
        run_id = str((config.get("metadata") or {}).get("run_id") or "")
        lane = (place.thread_id, place.ns)
        body = self._codec.pack_writes(self.serde, lane, checkpoint_id, writes, (task_id, task_path), run_id)
        self.store.post(place.thread_id, checkpoint_rows.put_writes, place, short_id(checkpoint_id), body, run_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of its lane.

        Raises:
            IntegrityError: A row was changed or moved, or names a type that may not be loaded.
        """
        return await self.store.read(self._views.get, config)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple` for a thread without an event loop."""
        return self.store.read_blocking(self._views.get, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints newest first, read page by page, so a list that is held open holds nothing else up."""
        left = limit
        position = await self.store.read(self._views.position, before) if before else None
        while left is None or left > 0:
            page, position, more = await self.store.read(self._views.page, config, filter, position)
            for found in page[:left]:
                yield found
            left = None if left is None else left - len(page)
            if not more:
                return

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist` for a thread without an event loop."""
        left = limit
        position = self.store.read_blocking(self._views.position, before) if before else None
        while left is None or left > 0:
            page, position, more = self.store.read_blocking(self._views.page, config, filter, position)
            yield from page[:left]
            left = None if left is None else left - len(page)
            if not more:
                return

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors wrote to the channels since the nearest stored value, and that value."""
        return await self.store.read(self._views.history, config, channels) if channels else {}

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history` for a thread without an event loop."""
        return self.store.read_blocking(self._views.history, config, channels) if channels else {}

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes a thread's checkpoints; ThreadBusyError while a run is live on it."""
        await self.store.write(self._upkeep.delete, thread_id)
        self._codec.forget()

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread` for a thread without an event loop."""
        self.store.write_blocking(self._upkeep.delete, thread_id)
        self._codec.forget()

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes what runs of LangGraph's server wrote, but for links that a surviving delta channel needs."""
        await self.store.write(self._upkeep.delete_runs, run_ids)
        self._codec.forget()

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`adelete_for_runs` for a thread without an event loop."""
        self.store.write_blocking(self._upkeep.delete_runs, run_ids)
        self._codec.forget()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies every checkpoint of a thread, with its writes and effect journal, to another one."""
        await self.store.write(self._upkeep.copy, source_thread_id, target_thread_id, self.store.clock.now())
        self._codec.forget()

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`acopy_thread` for a thread without an event loop."""
        self.store.write_blocking(self._upkeep.copy, source_thread_id, target_thread_id, self.store.clock.now())
        self._codec.forget()

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Thins threads: `keep_latest` (and all that it and pending approvals need), or `delete`.

        Raises:
            ValueError: Another strategy.
            ThreadBusyError: A run is live on one of the threads; those before it are thinned already.
        """
        operation = self._strategy(strategy)
        for thread_id in thread_ids:
            await self.store.write(operation, thread_id)
        self._codec.forget()

    async def athin(self, thread_id: str) -> int:
        """`keep_latest` for one thread; gives the number of checkpoints deleted."""
        deleted = await self.store.write(self._upkeep.keep_latest, thread_id)
        self._codec.forget()
        return deleted

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`aprune` for a thread without an event loop."""
        operation = self._strategy(strategy)
        for thread_id in thread_ids:
            self.store.write_blocking(operation, thread_id)
        self._codec.forget()

    def _strategy(self, name: str) -> Callable[[Tx, str], object]:
        strategies: Mapping[str, Callable[[Tx, str], object]] = {
            "keep_latest": self._upkeep.keep_latest,
            "delete": self._upkeep.delete,
        }
        if name not in strategies:
            raise ValueError(f"no prune strategy {name}: use keep_latest or delete")
        return strategies[name]

    @property
    def _views(self) -> CheckpointViews:
        # LangGraph clones the saver with another serializer, so views are made when they are used.
        return CheckpointViews(self._codec, self.serde)

    def _checkpoint_to_put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> _CheckpointToPut:
        place = self._place(config)
        parent = get_checkpoint_id(config)
        meta = get_serializable_checkpoint_metadata(config, metadata)
        lane = (place.thread_id, place.ns)
        body, blobs, entries = self._codec.pack_checkpoint(self.serde, lane, parent, checkpoint, meta)
        parent_id = None if parent is None else short_id(parent)
        run_id = str(meta.get("run_id") or "")
        return _CheckpointToPut(
            (place, short_id(checkpoint["id"]), parent_id, body, blobs, run_id), lane, checkpoint["id"], entries
        )

    def _stored(self, put: _CheckpointToPut) -> RunnableConfig:
        self._codec.remember(put.lane, put.checkpoint_id, put.entries)
        thread_id, ns = put.lane
        return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": put.checkpoint_id}}

    def _put(self, tx: Tx, put: _CheckpointToPut) -> None:
        if (lost := self.store.lost(put.lane[0])) is not None:
            raise lost
        checkpoint_rows.put_checkpoint(tx, *put.arguments)

    def _place(self, config: RunnableConfig) -> Place:
        configurable = config["configurable"]
        fence = configurable.get(FENCE_KEY)
        return Place(
            thread_id=str(configurable["thread_id"]),
            ns=configurable.get("checkpoint_ns", ""),
            fence=fence if isinstance(fence, Fence) else None,
            now=self.store.clock.now(),
        )
