"""Decides whether the text of a tool call's arguments is an object that may run."""

from __future__ import annotations

import json
from typing import Any

from nodes.models.text import whole_text

MAX_RAW = 4_000
"""Characters of an unusable argument text that are kept."""

MAX_DEPTH = 64
"""Deepest nesting of arguments. Stores and validators behind this one recurse; no tool needs more."""


class UnusableArgumentsError(ValueError):
    """The text is not an object that may run. The sentence is for the model."""


def parse_arguments(text: str, *, may_be_empty: bool) -> dict[str, Any]:
    """Reads the argument text of one call.

    Nothing is repaired or guessed: a text that was cut is not an object, and what is not an object does not run.

    Args:
        text: The pieces, joined.
        may_be_empty: Whether the tool's schema accepts no arguments at all, so that an empty text means `{}`.

    Raises:
        UnusableArgumentsError: With the reason.
    """
    text = whole_text(text)
    if not text.strip():
        if may_be_empty:
            return {}
        msg = "the arguments are empty, and this tool needs some"
        raise UnusableArgumentsError(msg)
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant)
    except RecursionError:
        msg = "the arguments are nested too deep"
        raise UnusableArgumentsError(msg) from None
    except ValueError as error:
        msg = f"the arguments are not JSON ({error})"
        raise UnusableArgumentsError(msg) from None
    if not isinstance(value, dict):
        msg = f"the arguments are not an object but {_kind(value)}"
        raise UnusableArgumentsError(msg)
    return _checked(value)


def is_complete_object(text: str) -> bool:
    """Whether a text is a whole JSON object by itself."""
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def bounded(text: str) -> str:
    """The raw text as it is kept: whole characters, at most `MAX_RAW` of them."""
    text = whole_text(text)
    return text if len(text) <= MAX_RAW else f"{text[:MAX_RAW]}... ({len(text) - MAX_RAW} more characters)"


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    """Refuses what cannot be stored: too deep, or escapes that are half a character."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            break
    else:
        msg = "the arguments are nested too deep"
        raise UnusableArgumentsError(msg)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        msg = "the arguments contain half a character (a lone surrogate)"
        raise UnusableArgumentsError(msg) from None
    return value


def _children(item: Any) -> list[Any]:
    values = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return [value for value in values if isinstance(value, dict | list)]


def _no_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")
