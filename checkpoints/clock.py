"""The one home of time and of fresh names, so that tests can replace both."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where instants and durations come from."""

    def now(self) -> datetime:
        """The wall clock as an aware UTC instant. May jump; never measure a duration with it."""

    def monotonic(self) -> float:
        """Seconds that never go backwards, comparable only inside one process."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """The monotonic clock in seconds."""
        return time.monotonic()


def fresh_id() -> str:
    """A random name no one else has: a UUID4 in its 36-character form (LangGraph's server accepts only UUID thread ids)."""
    return str(uuid.uuid4())
