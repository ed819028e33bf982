"""How a node says what it is doing.

A run attaches a sink of its own, which hears everything at once, also what a step says while it is being cancelled: LangGraph
closes its stream before the clean-up. Without a run (LangGraph Studio) events are custom parts of LangGraph's stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from langgraph.config import get_config
from langgraph.runtime import Runtime

from checkpoints.records import FENCE_KEY, Fence
from nodes.context import AgentContext
from nodes.tools.tool import Emit


class Sink(Protocol):
    """Takes a run's events."""

    def __call__(self, kind: str, payload: Mapping[str, Any], /) -> None:
        """Takes one event. Never blocks and never fails."""


class Events:
    """The sinks of a runtime's live runs."""

    def __init__(self) -> None:
        self._sinks: dict[str, Sink] = {}

    @contextmanager
    def heard_by(self, run_id: str, sink: Sink) -> Iterator[None]:
        """Until the block is left, the run's events go to `sink`."""
        self._sinks[run_id] = sink
        try:
            yield
        finally:
            del self._sinks[run_id]

    def emitter(self, runtime: Runtime[AgentContext]) -> Emit:
        """The event sink for the step that calls this."""
        fence = get_config().get("configurable", {}).get(FENCE_KEY)
        sink = self._sinks.get(fence.run_id) if isinstance(fence, Fence) else None
        write = runtime.stream_writer

        def emit(kind: str, /, **payload: Any) -> None:
            if sink is not None:
                sink(kind, payload)
            else:
                write({"kind": kind, **payload})

        return emit
