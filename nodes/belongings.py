"""Everything that runs for an owner, in one place: commands, background processes, a Python kernel. They end together."""

from __future__ import annotations

import asyncio

from nodes.native import LOST, Native
from nodes.processes.registry import Registry
from nodes.tools.python import Kernels


class Belongings:
    """What runs and sandbox sessions of one runtime have running."""

    def __init__(self, native: Native, registry: Registry, kernels: Kernels) -> None:
        self._native = native
        self._registry = registry
        self._kernels = kernels

    def running_for(self, owner: str) -> list[str]:
        """What an owner has running, a title each."""
        background = [found.scope.title for found in self._registry.list(owner) if found.scope.verdict is None]
        return [*self._native.running_for(owner), *background, *self._kernels.running_for(owner)]

    async def stop_owner(self, owner: str) -> list[str]:
        """Ends all of it at once, and gives a note for each part that is not proven gone."""
        native, background, kernel = await asyncio.gather(
            self._native.stop_owner(owner), self._registry.stop_owner(owner), self._kernels.stop_owner(owner)
        )
        notes = [f"background process: {LOST}" for verdict in background if not verdict.empty]
        return [*native, *notes, *([] if kernel else [f"python: {LOST}"])]
