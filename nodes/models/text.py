"""Text that providers cut inside a character."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_LEADING_LAST = re.compile("[\ud800-\udbff]\\Z")


def whole_text(text: str) -> str:
    """Joins surrogate pairs and puts one replacement mark for each half that stays alone.

    JSON may write a character beyond the basic plane as two escapes; a server that cuts its text between them sends each
    half in a chunk of its own. A half in a Python string cannot be encoded, so it must not travel on.
    """
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class TextJoiner:
    """Passes text on as it arrives, and holds back the first half of a cut character until its second half comes."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        if not self._held and piece.isascii():
            return piece
        piece = self._held + piece
        self._held = piece[-1:] if _LEADING_LAST.search(piece) else ""
        return whole_text(piece[:-1] if self._held else piece)

    def close(self) -> str:
        """What was held back, as a replacement mark; empty when nothing was."""
        held, self._held = self._held, ""
        return whole_text(held)
