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
    """What the steps of a runtime's live runs need of their run: who hears them, and when its time is over."""

    def __init__(self) -> None:
        self._live: dict[str, tuple[Sink, float | None]] = {}

    @contextmanager
    def heard_by(self, run_id: str, sink: Sink, deadline: float | None = None) -> Iterator[None]:
        """Until the block is left, the run's events go to `sink`, and its steps know its deadline.

        Args:
            run_id: The run.
            sink: Takes its events.
            deadline: Monotonic second at which the run ends, or None.
        """
        self._live[run_id] = (sink, deadline)
        try:
            yield
        finally:
            del self._live[run_id]

    def deadline(self) -> float | None:
        """Monotonic second at which the run of the step that calls this ends; None when it has no run or no end."""
        return self._of_this_step()[1]

    def emitter(self, runtime: Runtime[AgentContext]) -> Emit:
        """The event sink for the step that calls this."""
        sink, _ = self._of_this_step()
        write = runtime.stream_writer

        def emit(kind: str, /, **payload: Any) -> None:
            if sink is not None:
                sink(kind, payload)
            else:
                write({"kind": kind, **payload})

        return emit

    def _of_this_step(self) -> tuple[Sink | None, float | None]:
        fence = get_config().get("configurable", {}).get(FENCE_KEY)
        return self._live.get(fence.run_id, (None, None)) if isinstance(fence, Fence) else (None, None)
