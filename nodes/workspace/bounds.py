"""How long anything that a file tool says may be, and how a text is cut when it is longer."""

from __future__ import annotations

RESULT_BYTES = 48 * 1024
"""Cap of one tool result's content: about 12,000 tokens, and far under what any event or checkpoint may hold."""

LINE_BYTES = 2000
"""Cap of one line inside a result: a minified file must not fill the whole page with its first line."""


def size(text: str) -> int:
    """Length in UTF-8 bytes; a lone surrogate counts as the mark that will stand for it."""
    return len(text.encode("utf-8", "replace"))


def head(text: str, limit: int) -> str:
    """The longest start of `text` that fits in `limit` bytes, never ending inside a character."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def tail(text: str, limit: int) -> str:
    """The longest end of `text` that fits in `limit` bytes, never starting inside a character."""
    raw = text.encode("utf-8", "replace")
    return raw[max(0, len(raw) - limit) :].decode("utf-8", "ignore")


def clip(text: str, limit: int) -> str:
    """`text` when it fits in `limit` bytes, else its start and its end round a marker that counts what is missing.

    The marker comes on top of `limit`: under 60 bytes more.
    """
    total = size(text)
    if total <= limit:
        return text
    first = head(text, limit * 2 // 3)
    last = tail(text, limit - limit * 2 // 3)
    return f"{first}[... {total - size(first) - size(last)} bytes cut ...]{last}"
