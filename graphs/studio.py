"""The Studio door: what `langgraph.json` names, so that LangGraph's development server drives the same agent on the same store.

The server opens `checkpointer` once, before it asks for a graph, and closes it when it stops. The equipment lives exactly that
long, so a command that a run in the server has started ends with the server. The graph itself has no saver: the server
refuses one and puts in the one that `checkpointer` gave it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from checkpoints.errors import CheckreinError
from checkpoints.saver import ThreadSaver
from checkpoints.store import open_store
from graphs.agent import build_agent
from graphs.client import open_equipment, redactor_of
from graphs.settings import read_settings
from nodes.configuration import load_configuration

_compiled: Any = None
"""The agent over the equipment that is open now; None outside `checkpointer`."""


class StudioClosedError(CheckreinError):
    """The graph was asked for while no store is open."""

    code = "studio_closed"
    hint = "Start the server in the repository's folder, so that it reads langgraph.json with its `checkpointer`."

    def __init__(self) -> None:
        super().__init__("The agent has no store: the server did not open `graphs.studio.checkpointer` first.")


@asynccontextmanager
async def checkpointer() -> AsyncIterator[ThreadSaver]:
    """Opens the default store and the agent's equipment; leaving ends every process that the agent started.

    Raises:
        StoreError, StateFolderError: The store or the state folder cannot be used; the sentence says why.
    """
    global _compiled
    settings = read_settings()
    await asyncio.to_thread(settings.grant_key)  # makes the state folder too, as the command line would
    redact = redactor_of(await asyncio.to_thread(load_configuration, settings.config)).text
    async with open_store(settings.store, redact=redact) as store, open_equipment(settings, store) as equipment:
        # Compiling with a saver gives it the types of the graph's state. Without them LangGraph would add them later, to a
        # copy of the server's wrapper round the saver, and that wrapper cannot be copied (langgraph-api 0.16.7).
        saver = build_agent(equipment, ThreadSaver(store)).checkpointer
        _compiled = build_agent(equipment)
        try:
            yield saver
        finally:
            _compiled = None


def agent() -> Any:
    """Gives the compiled agent, without a saver.

    Raises:
        StudioClosedError: `checkpointer` is not open.
    """
    if _compiled is None:
        raise StudioClosedError
    return _compiled
