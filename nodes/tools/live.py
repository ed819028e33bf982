"""The live output of one call on its way to the run's events: bounded in total, however the call writes."""

from __future__ import annotations

from nodes.tools.tool import Emit

ROOM = 262_144
"""Bytes that one call's live output may take in the ledger. The result has head and tail, and the spill file has the rest."""

EVENT_COST = 256
"""Bytes charged for an event beside its text: what the ledger's row takes."""


class LiveOutput:
    """Passes pieces on until the room is used up, then counts what it leaves out and says so once, at the end.

    Args:
        emit: The run's event sink.
        call_id: The call.
        room: Bytes for all of it.
    """

    def __init__(self, emit: Emit, call_id: str, room: int = ROOM) -> None:
        self._emit = emit
        self._call_id = call_id
        self._room = room
        self._left_out = 0

    def put(self, text: str, skipped: int = 0) -> None:
        """Takes the next piece; `skipped` counts bytes before it that are missing already."""
        size = len(text.encode(errors="replace"))
        if self._left_out or size + EVENT_COST > self._room:
            self._left_out += size + skipped
            return
        self._room -= size + EVENT_COST
        self._emit("output", tool_call_id=self._call_id, text=text, skipped=skipped)

    def close(self) -> None:
        """Says how much was left out, if any was."""
        if self._left_out:
            self._emit("output", tool_call_id=self._call_id, text="", skipped=self._left_out)
            self._left_out = 0
