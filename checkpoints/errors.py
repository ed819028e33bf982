"""The root of every error of this project. Each room adds its own beside the code that raises it.

An error carries fields, builds its own sentence from them, and says what to do next. `record()` is what may be stored or
sent: errors are never pickled.
"""

from __future__ import annotations

from typing import ClassVar


class CheckreinError(Exception):
    """Anything this project raises on purpose.

    Attributes:
        code: A stable word for programs, for example `thread_busy`. Never changes once released.
        hint: What the person who meets it does next; empty only where the sentence already says so.
    """

    code: ClassVar[str] = "error"
    hint: str = ""

    def record(self) -> dict[str, str]:
        """The error as plain JSON: code, message, hint."""
        return {"code": self.code, "message": str(self), "hint": self.hint}


class UsageError(CheckreinError):
    """The caller asked for something that cannot be: fix the call. Nothing was changed."""

    code = "usage"


class ConflictError(CheckreinError):
    """Somebody else was first, or the world moved on: look again. Nothing was changed by this call."""

    code = "conflict"
