"""A conversation with a scripted model over real HTTP, with everything a test wants to look at afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from pydantic import Field

from nodes.models.chat_models import ChatModels
from nodes.models.reply import Draft, ModelReply, reply
from nodes.models.script import Script, ScriptedReply
from nodes.models.scripted import ScriptedModel
from nodes.models.spec import ModelChain, ModelSpec, Timeouts
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult

QUICK = Timeouts(connect=2.0, first_byte=20.0, between_chunks=20.0)


class NoArguments(Arguments):
    """A tool without arguments."""


class Optional(Arguments):
    """A tool whose one argument may be left out."""

    path: str = "."


class Required(Arguments):
    """A tool whose one argument must be there."""

    command: str = Field(min_length=1)


async def never(_: Any, __: CallSite) -> ToolResult:
    raise AssertionError("a model call runs no tool")


def tool(name: str, arguments: type[Arguments] = Required) -> Tool:
    return Tool(name=name, description=f"The tool {name}.", arguments=arguments, effect=Effect.OUTSIDE, run=never)


TOOLS = (tool("execute"), tool("find", Optional), tool("look", NoArguments), tool("delete", Optional))


@dataclass
class Talk:
    """One scripted server, the models that ask it, and what was seen."""

    server: ScriptedModel
    models: ChatModels
    specs: list[ModelSpec]
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    draft: Draft = field(default_factory=Draft)

    def emit(self, kind: str, /, **payload: Any) -> None:
        self.events.append((kind, payload))

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        return [payload for name, payload in self.events if name == kind]

    @property
    def shown(self) -> str:
        return "".join(payload["text"] for payload in self.of_kind("token"))

    async def say(
        self,
        messages: str | Sequence[BaseMessage] = "hello",
        *,
        tools: Sequence[Tool] = TOOLS,
        deadline: float | None = None,
        pinned: str | None = None,
    ) -> ModelReply:
        self.draft = Draft()
        history = [HumanMessage(messages)] if isinstance(messages, str) else messages
        return await reply(
            history,
            tools,
            ModelChain(models=tuple(self.specs)),
            ask=self.models.ask,
            emit=self.emit,
            deadline=deadline,
            pinned=pinned,
            draft=self.draft,
        )


@contextlib.asynccontextmanager
async def talking(
    *replies: ScriptedReply,
    names: Sequence[str] = ("first",),
    retries: int = 0,
    timeouts: Timeouts = QUICK,
    strict: bool = True,
    **server_options: Any,
) -> AsyncIterator[Talk]:
    """A talk with one server whose script is `replies`; each name is one model of the chain."""
    async with ScriptedModel(Script.of(*replies), strict=strict, **server_options) as server, ChatModels({}) as models:
        specs = [ModelSpec(model=name, base_url=server.base_url, retries=retries, timeouts=timeouts) for name in names]
        yield Talk(server=server, models=models, specs=specs)


def raw(*packets: str, **options: Any) -> ScriptedReply:
    """A reply whose stream is exactly these packets."""
    return ScriptedReply(raw=packets, **options)
