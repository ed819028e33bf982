"""What servers are started with; needs nothing of the client library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where servers run, and who hears of what went wrong.

    Attributes:
        folder: Working folder of every server that is started, and where it may write when it is confined.
        home: The person's home folder.
        store: Where approvals and runs are kept: out of every confined server's reach.
        spill: Folder, outside every workspace, for answers that are too long to pass on.
        environment: The runtime's own environment; servers get its allow-listed part and what their table names.
        listings: Folder, out of every agent's reach, in which it is kept what servers offer; None starts every server at once.
        note: Takes a sentence for people: a server that does not start, a tool that is left out.
    """

    folder: Path
    home: Path
    store: tuple[Path, ...]
    spill: Path
    environment: Mapping[str, str]
    note: Callable[[str], None]
    listings: Path | None = None
