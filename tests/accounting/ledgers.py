"""What the tests of model calls share: models configured as a person would, and what a finished run tells about itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphs.client import open_checkrein
from graphs.run import Run
from graphs.service import Service
from nodes.context import AgentContext
from nodes.models.script import ScriptedReply, ScriptedUsage, When
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult
from tests.runs.scene import GUARD, Scene, scene

SEVEN_THREE = ScriptedUsage(input=7, output=3)


class Look(Arguments):
    """Arguments of the tool that the tests bring."""

    path: str = "."


async def looked(arguments: Look, _: CallSite) -> ToolResult:
    return ToolResult(content=f"looked at {arguments.path}")


LOOK = Tool(name="look", description="Looks.", arguments=Look, effect=Effect.NONE, run=looked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run that ended tells."""

    outcome: str
    kinds: tuple[str, ...]
    events: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def terminal(self) -> Mapping[str, Any]:
        """The payload of the one terminal event."""
        [payload] = self.of_kind("run_terminal")
        assert self.kinds[-1] == "run_terminal"
        return payload

    @property
    def shown(self) -> str:
        """The text that a person saw."""
        return "".join(payload["text"] for payload in self.of_kind("token"))

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        return [payload for name, payload in self.events if name == kind]


async def told(run: Run, outcome: str | None = None) -> Told:
    """Waits for a run's end and reads what it told, which must be one terminal event and nothing after it."""
    ended = await run.wait_stopped(GUARD)
    events = [(event.kind, event.payload) async for event in run.stream()]
    found = Told(outcome=ended, kinds=tuple(kind for kind, _ in events), events=tuple(events))
    assert found.terminal["outcome"] == ended
    if outcome is not None:
        assert ended == outcome, found.terminal
    return found


def configured(place: Scene, *models: Mapping[str, Any], more: str = "") -> None:
    """Writes the person's configuration file with these models, first choice first, all at the scene's server."""
    tables = [{"base_url": place.model.base_url, **model} for model in models]
    lines = [line for table in tables for line in ("[[models.chain]]", *(f"{key} = {_toml(table[key])}" for key in table))]
    assert place.settings.config is not None
    place.settings.config.write_text("\n".join([*lines, more]) + "\n")


def chain(*names: str, **fields: Any) -> tuple[dict[str, Any], ...]:
    """Models that differ in their names alone."""
    return tuple({"model": name, **fields} for name in names)


@asynccontextmanager
async def working(
    root: Path,
    replies: Sequence[ScriptedReply],
    *models: Mapping[str, Any],
    tools: Sequence[Tool] = (LOOK,),
    more: str = "",
    **options: Any,
) -> AsyncIterator[tuple[Scene, Service]]:
    """A scene with configured models, and a runtime over it."""
    async with scene(root, replies, **options) as place:
        configured(place, *(models or chain("first")), more=more)
        async with open_checkrein(settings=place.settings, tools=tools) as service:
            yield place, service


def freely(place: Scene, **fields: Any) -> AgentContext:
    """The context of a run that asks nobody."""
    return place.context.model_copy(update={"review_mode": "auto", "yolo": True, **fields})


def only(model: str, reply: ScriptedReply) -> ScriptedReply:
    """The reply for requests to one model alone."""
    return reply.model_copy(update={"when": When(model=model)})


def costing(reply: ScriptedReply, input_tokens: int, output_tokens: int) -> ScriptedReply:
    """The reply with token counts."""
    return reply.model_copy(update={"usage": ScriptedUsage(input=input_tokens, output=output_tokens)})


def asked(place: Scene) -> list[tuple[str, int | None]]:
    """Model and status of each request, in order of arrival."""
    return [(request.model, request.status) for request in place.model.requests]


async def saw(run: Run, kind: str) -> Mapping[str, Any]:
    """Waits until a run has said something of a kind."""
    async for event in run.stream():
        if event.kind == kind:
            return event.payload
    raise AssertionError(f"the run ended without {kind}")


def all_answered(messages: Sequence[Any]) -> bool:
    """Whether every call of a conversation has its answer, each right behind its reply."""
    waiting: list[str] = []
    for message in messages:
        if message.type == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            return False
        if message.type == "ai":
            waiting = [call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]]
    return not waiting


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)
