"""How a node says what it is doing: custom parts of LangGraph's stream, so that every driver of the graph sees them."""

from __future__ import annotations

from typing import Any

from langgraph.runtime import Runtime

from nodes.context import AgentContext
from nodes.tools.tool import Emit


def emitter(runtime: Runtime[AgentContext]) -> Emit:
    """The run's event sink for one node. What it takes ends as `{"kind": ..., **payload}` in the stream."""
    write = runtime.stream_writer

    def emit(kind: str, /, **payload: Any) -> None:
        write({"kind": kind, **payload})

    return emit
