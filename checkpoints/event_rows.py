"""Events inside a transaction, and the bound on what one may hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from checkpoints.records import Event, EventPage, NewEvent
from checkpoints.run_rows import dump
from checkpoints.squeezing import grown, squeezed
from checkpoints.tx import Tx, instant, stamp

PAYLOAD_CHARS = 90_000
"""Bound on a payload as JSON, below the 100,000 characters that readers are promised."""

TEXT_CHARS = 60_000
SHORTEST_TEXT = 120
MOST_ITEMS = 1_000
FEWEST_ITEMS = 8
DEEPEST = 32
CUT = "cut"


def bounded(payload: Mapping[str, Any], redact: Callable[[str], str]) -> str:
    """A payload as redacted JSON within the bound.

    Long texts keep their head and tail round a marker, halved again and again until the whole fits; long lists keep their
    first items. Short texts (ids, paths, error words) and all keys stay whole. What was cut says so: the payload then has
    `"cut": true`.
    """
    limit, items = TEXT_CHARS, MOST_ITEMS
    clean = {str(key): _shorten(value, redact, limit=None, items=None) for key, value in payload.items()}
    result = clean
    while _size(result) > PAYLOAD_CHARS and limit > SHORTEST_TEXT:
        limit, items = limit // 2, max(items // 2, FEWEST_ITEMS)
        result = {**_shorten(clean, str, limit=limit, items=items), CUT: True}
    if _size(result) > PAYLOAD_CHARS:
        result = {CUT: True, "keys": [key[:SHORTEST_TEXT] for key in list(clean)[:FEWEST_ITEMS]]}
    return dump(result)


def _size(value: Any) -> int:
    """Length as JSON in the longest form a reader may choose (all escapes)."""
    return len(json.dumps(value))


def _shorten(value: Any, redact: Callable[[str], str], *, limit: int | None, items: int | None, depth: int = 0) -> Any:
    """A JSON value from any value, its texts redacted, long texts and lists cut where limits are given."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth < DEEPEST and isinstance(value, Mapping):
        kept = list(value.items())[:items]
        return {str(key): _shorten(each, redact, limit=limit, items=items, depth=depth + 1) for key, each in kept}
    if depth < DEEPEST and isinstance(value, list | tuple | set | frozenset):
        several = list(value)
        shortened = [_shorten(each, redact, limit=limit, items=items, depth=depth + 1) for each in several[:items]]
        left_out = len(several) - len(shortened)
        return [*shortened, f"[{left_out} more items cut]"] if left_out else shortened
    text = redact(value if isinstance(value, str) else str(value))
    return text if limit is None else _ends_of(text, limit)


def _ends_of(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters cut] {text[-half:]}"


def append(tx: Tx, run_id: str, events: Sequence[tuple[str, str]], now: datetime) -> int:
    """Appends (kind, bounded payload) pairs to a run and gives its last seq."""
    [(number, last)] = tx.execute(
        "UPDATE runs SET last_seq = last_seq + ? WHERE run_id = ? RETURNING run_no, last_seq", (len(events), run_id)
    )
    first = last - len(events) + 1
    for seq, (kind, payload) in enumerate(events, first):
        tx.execute(
            "INSERT INTO events (run_no, seq, kind, at, payload) VALUES (?, ?, ?, ?, ?)",
            (number, seq, kind, stamp(now), squeezed(payload)),
        )
    return int(last)


def page(tx: Tx, run_id: str, after: int, limit: int) -> EventPage:
    """Events of a run above a position."""
    rows = tx.execute(
        "SELECT e.seq, e.kind, e.payload, e.at FROM events e JOIN runs r ON r.run_no = e.run_no"
        " WHERE r.run_id = ? AND e.seq > ? ORDER BY e.seq LIMIT ?",
        (run_id, after, limit + 1),
    )
    events = tuple(
        Event(run_id=run_id, seq=seq, kind=kind, payload=json.loads(grown(payload)), at=instant(at))
        for seq, kind, payload, at in rows[:limit]
    )
    return EventPage(events=events, has_more=len(rows) > limit)


def ready(events: Sequence[NewEvent], redact: Callable[[str], str]) -> list[tuple[str, str]]:
    """Events as `append` takes them."""
    return [(event.kind, bounded(event.payload, redact)) for event in events]
