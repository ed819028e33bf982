"""Checkpoints as LangGraph asks for them: one, a page of them, and the history of delta channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, get_checkpoint_id

from checkpoints import checkpoint_rows
from checkpoints.checkpoint_codec import CheckpointCodec
from checkpoints.checkpoint_rows import CheckpointRow
from checkpoints.packing import short_id
from checkpoints.serializer import StrictSerializer
from checkpoints.tx import Tx

PAGE = 64


@dataclass(frozen=True, slots=True)
class CheckpointViews:
    """Read operations, each for one transaction. All raise IntegrityError for a row that is not what was stored."""

    codec: CheckpointCodec
    serde: StrictSerializer

    def get(self, tx: Tx, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, the newest of its lane when it names none."""
        row = _row(tx, config)
        return None if row is None else self.codec.open_checkpoint(self.serde, tx, row)

    def position(self, tx: Tx, before: RunnableConfig) -> int | None:
        """The seq that a listing stays below; 0, so nothing, when the named checkpoint is not there."""
        if not get_checkpoint_id(before):
            return None
        row = _row(tx, before)
        return 0 if row is None else row.seq

    def page(
        self, tx: Tx, config: RunnableConfig | None, wanted_metadata: dict[str, Any] | None, position: int | None
    ) -> tuple[Sequence[CheckpointTuple], int | None, bool]:
        """Checkpoints below a position, newest first: those that fit, the next position, and whether to go on."""
        configurable = config["configurable"] if config else {}
        wanted = configurable.get("checkpoint_id")
        rows = checkpoint_rows.page_of_checkpoints(
            tx,
            configurable.get("thread_id"),
            configurable.get("checkpoint_ns"),
            short_id(wanted) if wanted else None,
            position,
            PAGE,
        )
        found = (self.codec.open_checkpoint(self.serde, tx, row) for row in rows)
        page = [each for each in found if _matches(each.metadata, wanted_metadata)]
        return page, rows[-1].seq if rows else None, len(rows) == PAGE

    def history(self, tx: Tx, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors wrote to the channels since the nearest stored value, and that value.

        Reads back no further than that value, channel by channel.
        """
        target = _row(tx, config)
        left = set(channels)
        collected: dict[str, Any] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        row = None if target is None else checkpoint_rows.parent_of(tx, target)
        while row is not None and left:
            for write in reversed(self.codec.open_writes(self.serde, tx, row, frozenset(left))):
                collected[write[1]].append(write)
            entries = [entry for entry in self.codec.unseal(row)[3] if entry[0] in left]
            seeds |= self.codec.values(self.serde, tx, row, entries)
            left -= seeds.keys()
            row = checkpoint_rows.parent_of(tx, row) if left else None
        return {channel: _history_of(channel, collected[channel], seeds) for channel in channels}


def _row(tx: Tx, config: RunnableConfig) -> CheckpointRow | None:
    configurable = config["configurable"]
    wanted = get_checkpoint_id(config)
    return checkpoint_rows.get_checkpoint(
        tx,
        str(configurable["thread_id"]),
        configurable.get("checkpoint_ns", ""),
        short_id(wanted) if wanted else None,
    )


def _history_of(channel: str, newest_first: Sequence[Any], seeds: Mapping[str, Any]) -> DeltaChannelHistory:
    history = DeltaChannelHistory(writes=[*reversed(newest_first)])
    if channel in seeds:
        history["seed"] = seeds[channel]
    return history


def _matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(metadata.get(key) == value for key, value in (wanted or {}).items())
