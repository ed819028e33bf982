"""The agent graph, and the native command's graph inside it. Compiled with a saver for runs, and without one for Studio.

START -> prepare -> model -+-> END
            ^              +-> approval -+-> tool, native   (one Send per call)
            |              +-------------+-> tool, native
            +---- tool, native
"""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph

from nodes.context import AgentContext
from nodes.equipment import Equipment
from nodes.gate import APPROVAL, NATIVE, TOOL
from nodes.model import Model
from nodes.native import Native
from nodes.prepare import Prepare, within_limits
from nodes.review import Approval
from nodes.state import AgentInput, AgentOutput, AgentState, NativeState, ToolTask
from nodes.tool import ToolStep

NAME = "checkrein"


def build_agent(equipment: Equipment, saver: BaseCheckpointSaver[Any] | None = None) -> Any:
    """Compiles the agent.

    Args:
        equipment: What the nodes work with.
        saver: Where checkpoints go. None for LangGraph's server, which brings its own and refuses a graph that has one.
    """
    gate = equipment.gate
    model = Model(equipment.answering, gate, equipment.events)
    builder = StateGraph(AgentState, context_schema=AgentContext, input_schema=AgentInput, output_schema=AgentOutput)
    builder.add_node("prepare", Prepare(equipment.answering, equipment.events).__call__)
    builder.add_node("model", model.__call__)
    builder.add_node(APPROVAL, Approval(gate).__call__, destinations=(TOOL, NATIVE))
    builder.add_node(TOOL, ToolStep(gate, equipment.effects, equipment.events).__call__, input_schema=ToolTask)
    builder.add_node(NATIVE, build_native(equipment.native))
    builder.add_edge(START, "prepare")
    builder.add_conditional_edges("prepare", within_limits, {"model": "model", END: END})
    builder.add_conditional_edges("model", model.route, [APPROVAL, TOOL, NATIVE, END])
    builder.add_edge(TOOL, "prepare")
    builder.add_edge(NATIVE, "prepare")
    return builder.compile(checkpointer=saver, name=NAME)


def build_native(native: Native) -> Any:
    """Compiles the subgraph of one native command. It inherits the agent's saver, so Studio can look into it."""
    builder = StateGraph(NativeState, context_schema=AgentContext)
    builder.add_node("spawn", native.spawn, destinations=("watch", END))
    builder.add_node("watch", native.watch, destinations=("reap", "spawn"))
    builder.add_node("reap", native.reap)
    builder.add_edge(START, "spawn")
    builder.add_edge("reap", END)
    return builder.compile(name="native")
