"""Brings a run's events to the ledger in order, without ever making the graph wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from checkpoints.ledger import Ledger
from checkpoints.records import Fence, NewEvent
from graphs.receipt import Tally

JOINED = {"token": "text", "output": "text"}
"""Kinds whose payloads are pieces of one text, by the key that holds the piece: neighbours go into one event."""

PIECE_LIMIT = 16_384
"""Characters that one joined event holds at most, far below what the ledger takes for one payload."""

SETTLE = 0.03
"""Seconds that pieces are gathered before they are written: below what a reader notices, above a commit's price."""


class Recorder:
    """One run's queue of events.

    Attributes:
        partial: Text that the model has shown and that no finished reply contains yet.
        tally: What the run's model attempts took.
    """

    def __init__(self, ledger: Ledger, fence: Fence) -> None:
        self.partial = ""
        self.tally = Tally()
        self._ledger = ledger
        self._fence = fence
        self._waiting: list[NewEvent] = []
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Takes an event. Never blocks; a piece of text joins the one before it."""
        self._track_partial(kind, payload)
        self.tally.take(kind, payload)
        key = JOINED.get(kind)
        last = self._waiting[-1] if self._waiting else None
        if key and last and _joins(last, kind, payload, key):
            joined = {**payload, key: last.payload[key] + payload[key]}
            self._waiting[-1] = NewEvent(kind=kind, payload=joined)
        else:
            self._waiting.append(NewEvent(kind=kind, payload=payload))
        self._wake.set()

    def close(self) -> None:
        """Lets `run` end when everything is written."""
        self._closed = True
        self._wake.set()

    async def run(self) -> None:
        """Writes until closed.

        Raises:
            StaleFenceError: The thread was fenced off; the run must stop.
            StoreError: The store does not take the events.
        """
        while not (self._closed and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            if not self._closed and all(event.kind in JOINED for event in self._waiting):
                await asyncio.sleep(SETTLE)
            batch, self._waiting = self._waiting, []
            if batch:
                await self._ledger.append(self._fence, batch)

    def _track_partial(self, kind: str, payload: Mapping[str, Any]) -> None:
        if kind == "token":
            self.partial += payload["text"]
        elif kind in ("stream_reset", "model_reply"):
            self.partial = ""


def _joins(last: NewEvent, kind: str, payload: Mapping[str, Any], key: str) -> bool:
    if last.kind != kind or len(last.payload[key]) + len(payload[key]) > PIECE_LIMIT:
        return False
    return all(last.payload.get(name) == value for name, value in payload.items() if name != key)
