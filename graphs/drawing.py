"""The agent graph as text, drawn from the graph itself so that it cannot be out of date."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from checkpoints.store import open_store
from graphs.agent import build_agent
from graphs.client import open_equipment
from graphs.settings import Settings


async def mermaid() -> str:
    """The agent graph with the native command's graph inside it, as Mermaid text. Touches no store of the user's."""
    with TemporaryDirectory(prefix="checkrein-graph-") as folder:
        home = Path(folder)
        settings = Settings(home=home, store=str(home / "unused.db"), model="", base_url="", key_name="")
        async with open_store(settings.store) as store, open_equipment(settings, store) as equipment:
            text: str = build_agent(equipment).get_graph(xray=True).draw_mermaid()
    return text.rstrip("\n")
