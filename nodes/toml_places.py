"""Where in a TOML text a value stands, so that a complaint about the value can name its line.

`tomllib` keeps no positions. Headers and keys are found line by line as people write them, each read by `tomllib` itself, so
quoted and dotted names are understood; what is written another way (inside an inline table) is found by what it stands in.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence

Place = tuple[str | int, ...]
"""Keys and positions in arrays, from the root of the file."""


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The line, from 1, on which the value at a place begins, or the nearest thing that holds it; 0 when neither is found.

    Args:
        text: The whole file; sound TOML.
        place: Where the value is.
    """
    wanted = tuple(place)
    shared = ((min(len(at), len(wanted)), number, at) for number, at in _places(text))
    found = [(length, -number) for length, number, at in shared if at[:length] == wanted[:length]]
    return -max(found)[1] if found else 0


def _places(text: str) -> Iterator[tuple[int, Place]]:
    table: Place = ()
    seen: Counter[Place] = Counter()
    for number, line in enumerate(text.split("\n"), start=1):
        written = line.strip()
        if written.startswith("["):
            names = _names(written.partition("#")[0] if '"' not in written else written)
            if names is None:
                continue
            table = _numbered(names, seen)
            if written.startswith("[["):
                table = (*table, seen[table])
                seen[table[:-1]] += 1
            yield number, table
        elif "=" in written:
            names = _names(written.partition("=")[0] + "= 0")
            if names is not None:
                yield number, (*table, *names)


def _numbered(names: tuple[str, ...], seen: Counter[Place]) -> Place:
    """A header's names with the position of each array of tables on the way, which is the newest one."""
    place: Place = ()
    for name in names[:-1]:
        place = (*place, name)
        if seen[place]:
            place = (*place, seen[place] - 1)
    return (*place, names[-1])


def _names(line: str) -> tuple[str, ...] | None:
    """The names that a header or a key alone spells; None for anything else."""
    try:
        value: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    names: list[str] = []
    while value:
        value = value[0] if isinstance(value, list) else value
        if not isinstance(value, dict) or not value:
            break
        [(name, value)] = value.items()
        names.append(name)
    return tuple(names) or None
