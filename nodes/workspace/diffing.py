"""Unified diffs in bounded time: what is equal at both ends is set aside before the rest is compared."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

CONTEXT = 3
_COMPARED_LINES = 3000
"""Longest differing middle that is compared line by line (difflib is quadratic at worst); a longer one is shown as replaced."""


def unified_diff(path: str, before: bytes | None, after: bytes) -> str:
    """What changes in one file, as `diff -u` writes it; empty when nothing does.

    Args:
        path: The name that the headers carry.
        before: The old content; None for a file that is not there yet.
        after: The new content.
    """
    if before == after:
        return ""
    old, new = _lines(before or b""), _lines(after)
    header = [f"--- {'/dev/null' if before is None else 'a/' + path}", f"+++ b/{path}"]
    return "\n".join([*header, *_hunks(old, new)]) + "\n"


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        return lines[:-1]
    lines[-1] += "\n\\ No newline at end of file"
    return lines


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    start = _common(old, new)
    ending = _common(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT)
    kept = max(0, ending - CONTEXT)
    left, right = old[first : len(old) - kept], new[first : len(new) - kept]
    for group in _groups(left, right, start - first, ending - kept):
        yield _header(group, first)
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (" " + line for line in left[i1:i2])
                continue
            yield from ("-" + line for line in left[i1:i2])
            yield from ("+" + line for line in right[j1:j2])


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


_Operation = tuple[str, int, int, int, int]


def _groups(left: Sequence[str], right: Sequence[str], lead: int, trail: int) -> list[list[_Operation]]:
    if max(len(left), len(right)) <= _COMPARED_LINES:
        return [list(group) for group in difflib.SequenceMatcher(None, left, right).get_grouped_opcodes(CONTEXT)]
    i, j = len(left) - trail, len(right) - trail
    return [[("equal", 0, lead, 0, lead), ("replace", lead, i, lead, j), ("equal", i, len(left), j, len(right))]]


def _header(group: Sequence[_Operation], offset: int) -> str:
    _, i1, _, j1, _ = group[0]
    _, _, i2, _, j2 = group[-1]
    return f"@@ -{_span(i1 + offset, i2 - i1)} +{_span(j1 + offset, j2 - j1)} @@"


def _span(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"
