"""Takes keys out of text before a person, an event or the store sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, urlsplit, urlunsplit

MASK = "***"

_SHORTEST_SECRET = 6  # a shorter value would blank ordinary words
_PATTERNS = (
    (re.compile(r"(?i)(\bbearer\s+|\bbasic\s+)[\w.~+/=-]{6,}"), r"\1" + MASK),
    (re.compile(r"(?i)([?&](?:api[-_]?key|key|token|access[-_]token|signature|sig|secret|password)=)[^&\s\"']+"), r"\1" + MASK),
    (
        re.compile(
            r"(?i)([\"']?\b(?:authorization|(?:x[-_])?api[-_]?key|access[-_]?token|client[-_]?secret|password)\\?[\"']?\s*[:=]\s*)"
            r"(?!(?:bearer|basic)\b)(\\?[\"']?)[^\s\"'\\,}]{4,}"
        ),
        r"\1\2" + MASK,
    ),
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|sk-ant|ghp|gho|hf|AIza)[-_][\w-]{8,}"), MASK),
    (re.compile(r"(?i)(https?://)[^/\s@:]+:[^/\s@]+@"), r"\1" + MASK + "@"),
)


class Redactor:
    """Blanks known secrets, in every form they take on the wire, and whatever looks like one.

    Args:
        secrets: Values that must not be seen. Those shorter than six characters are left to the patterns.
    """

    __slots__ = ("_forms",)

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= _SHORTEST_SECRET
            for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        self._forms = tuple(sorted(forms, key=len, reverse=True))

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    def text(self, value: str, *, limit: int | None = None) -> str:
        """The text without secrets, cut to `limit` characters after the secrets are out."""
        for form in self._forms:
            value = value.replace(form, MASK)
        for pattern, replacement in _PATTERNS:
            value = pattern.sub(replacement, value)
        if limit is not None and len(value) > limit:
            return value[:limit] + f"... ({len(value) - limit} more characters)"
        return value

    def url(self, value: str) -> str:
        """An address without user, password and query, for sentences and events."""
        parts = urlsplit(value)
        host = parts.netloc.rpartition("@")[2]
        return self.text(urlunsplit((parts.scheme, host, parts.path, "", "")))
