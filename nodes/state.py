"""The agent's checkpointed state: small, typed, and free of secrets, since all of it is written to the store."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from langchain_core.messages import AnyMessage
from typing_extensions import TypedDict

from checkpoints.messages import MessagesChannel

GRAPH_VERSION = 1
"""Raised when a stored thread of the version before can no longer be continued as it is. Kept with every thread."""

ReviewMode = Literal["manual", "auto"]

Conversation = Annotated[list[AnyMessage], MessagesChannel()]
"""The messages of a thread; only what is new is stored each step."""


class Admitted(TypedDict):
    """What was verified when the thread's newest task was admitted. A resume reads it from here and nowhere else.

    Attributes:
        mode: `manual` asks before every call that has an effect, `auto` asks for what the policy marks.
        workspace: Absolute path of the folder that tools act in.
        model: Name of the model that answers.
        sandbox: Key of the sandbox session whose workspace it is; empty when it is none's.
        finite: True when the caller cannot stay to answer: what would ask is denied at once.
        unattended: True when nobody is there and the caller answers for what runs; only with `finite`.
        yolo: True when approvals are bypassed, the floor and the deny rules excepted.
    """

    mode: ReviewMode
    workspace: str
    model: str
    sandbox: str
    finite: bool
    unattended: bool
    yolo: bool


class Spent(TypedDict):
    """What the task in progress has used of its limits; starts at zero with each new task.

    Attributes:
        turns: Model calls answered.
        tool_calls: Tool calls asked for.
        tokens: Input and output tokens of every attempt of those calls, as far as anybody said.
        context_tokens: Input tokens of the newest call, reported or estimated; 0 while unknown.
        context_estimated: True when they were estimated.
        cost: US dollars as a decimal text; empty while no price is known. Unknown is not zero.
        warned: Limits that a warning was given for.
    """

    turns: int
    tool_calls: int
    tokens: int
    context_tokens: int
    context_estimated: bool
    cost: str
    warned: list[str]


class AgentInput(TypedDict):
    """What starts a task: the new messages, as message objects or `{"role", "content"}` mappings."""

    messages: Conversation


class AgentOutput(TypedDict):
    """What a finished task shows: the conversation and, when a limit ended it, which one."""

    messages: Conversation
    exit_reason: NotRequired[str]


class AgentState(TypedDict):
    """Everything a thread remembers between two steps.

    Attributes:
        messages: The conversation, every tool call answered before the next model call.
        admitted: The terms of the task in progress.
        spent: What it has used of its limits.
        pinned: The model that has answered the task; it alone is asked until the next task.
        exit_reason: Empty, or the limit that ended the task, for example `max_iterations_reached(30/30)`.
    """

    messages: Conversation
    admitted: NotRequired[Admitted]
    spent: NotRequired[Spent]
    pinned: NotRequired[str]
    exit_reason: NotRequired[str]


class PresetAnswer(TypedDict):
    """The answer of a call that does not run: it was rejected, answered by a person, or unfit."""

    content: str
    is_error: bool


class ToolTask(TypedDict):
    """One call on its way to execution: the argument of one `Send`.

    Attributes:
        call_id: The tool call's id in the assistant message.
        name: The tool.
        args: The arguments that will run, as asked for or as edited by a person.
        digest: What was approved: `nodes.calls.digest` of name and validated arguments.
        approved: True when a person approved it (as it is or as edited).
        edited: True when a person replaced the arguments.
        change: Digest of the file change that the person saw; empty when none was shown.
        admitted: The terms of the task.
        preset: The answer, when it is known without running anything.
    """

    call_id: str
    name: str
    args: dict[str, Any]
    digest: str
    approved: bool
    edited: bool
    change: str
    admitted: Admitted
    preset: NotRequired[PresetAnswer]


class NativeState(TypedDict):
    """The state of one native command's subgraph.

    Attributes:
        task: The call.
        scope: Key of the running scope in this runtime; empty before the spawn, and dead after a crash of the runtime.
        messages: The one answer, handed to the agent when the subgraph ends.
    """

    task: ToolTask
    scope: NotRequired[str]
    messages: NotRequired[list[AnyMessage]]
