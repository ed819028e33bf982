"""How long to wait before the same model is asked again."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

SHORTEST = 0.25
"""Seconds. A service that says 0, or a moment that has passed, is still not hammered."""

LONGEST = 60.0
"""Seconds. A service that asks for more is asked again after this, or the fallback answers."""

_FIRST_BACKOFF = 0.5


def seconds_to_wait(retry_after: str | None, *, retry: int, now: datetime) -> float:
    """The wait before a retry: what Retry-After says (RFC 9110, 10.2.3: seconds or a date), else 0.5 s doubled each time.

    Args:
        retry_after: The header as it came, or None. A negative number and junk count as missing.
        retry: 1 before the first retry.
        now: The wall clock, aware.

    Returns:
        Seconds between `SHORTEST` and `LONGEST`.
    """
    asked = None if retry_after is None else _asked(retry_after.strip(), now)
    wait = _FIRST_BACKOFF * 2 ** min(retry - 1, 16) if asked is None else asked
    return min(max(wait, SHORTEST), LONGEST)


def _asked(text: str, now: datetime) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return _until(text, now)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
