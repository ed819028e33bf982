"""What every command is given, and how it opens the store behind it."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from checkpoints.errors import UsageError
from graphs.cli.face import Face
from graphs.cli.recording import recorded_to
from graphs.cli.stops import Stops
from graphs.client import open_checkrein
from graphs.service import Service
from nodes.context import AgentContext
from nodes.models.chat_models import ChatModels
from nodes.models.script import Script
from nodes.models.scripted import ScriptedModel

STARTS = frozenset({"run", "record"})
"""Commands that start a task and so choose its workspace."""

OPTIONS = (
    "model",
    "base_url",
    "review_mode",
    "sandbox",
    "instructions",
    "finite",
    "unattended",
    "yolo",
    "max_turns",
    "max_tool_calls",
    "max_tokens",
    "max_cost",
    "approval_timeout",
    "timeout",
)
"""Options that are a field of the context, by the field's name."""

SCRIPTED = "scripted"
"""What a scripted model is called when no name is given: it answers to every name."""


class OptionError(UsageError):
    """An option's value cannot be used."""

    code = "option"

    def __init__(self, option: str, problem: str, hint: str = "") -> None:
        self.option = option
        self.problem = problem
        self.hint = hint
        super().__init__(f"{option}: {problem}.")


class WorkspaceMissingError(UsageError):
    """The workspace is not there, or is no folder."""

    code = "workspace_missing"
    hint = "Make the folder first, or name another one with --workspace."

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"The workspace {path} is not a folder.")


@dataclass(frozen=True, slots=True)
class Desk:
    """One command at work.

    Attributes:
        args: What was asked for.
        face: Where it is shown.
        stops: What the signals mean.
    """

    args: argparse.Namespace
    face: Face
    stops: Stops

    @property
    def subject(self) -> str:
        """Who works here, as the operating system knows them: who asks for runs and decides about calls."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):  # no name in the environment and none for the number
            return f"uid {os.getuid()}"

    @asynccontextmanager
    async def service(self, models: ChatModels | None = None) -> AsyncIterator[Service]:
        """The verbs over the store that was named. What still runs at the end of the block is cancelled and waited for."""
        async with open_checkrein(store=self.args.store, models=models) as service:
            yield service

    @asynccontextmanager
    async def runner(self) -> AsyncIterator[tuple[Service, AgentContext]]:
        """Like `service`, with the terms for a run; the scripted model that was asked for plays as long.

        Raises:
            ScriptError: The script file cannot be used.
            OptionError: An option's value cannot be used.
            RecordFileError: The recording that was asked for cannot be kept.
        """
        async with AsyncExitStack() as stack:
            options = _chosen(self.args)
            if self.args.script:
                script = await asyncio.to_thread(Script.load, self.args.script)
                server = await stack.enter_async_context(ScriptedModel(script))
                options |= {"base_url": server.base_url, "model": options.get("model", SCRIPTED)}
            context = _context(options)
            models = stack.enter_context(recorded_to(Path(self.args.record))) if self.args.record else None
            yield await stack.enter_async_context(self.service(models)), context
            self.stops.ignore()


def workspace_of(args: argparse.Namespace) -> str:
    """The folder that tools act in, absolute.

    Raises:
        WorkspaceMissingError: It is not there.
    """
    path = Path(args.workspace or ".").absolute()
    if not path.is_dir():
        raise WorkspaceMissingError(path)
    return str(path)


def _chosen(args: argparse.Namespace) -> dict[str, Any]:
    """The options that were given; one that was not keeps the context's default and counts as not chosen."""
    given = {name: getattr(args, name, None) for name in OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    # A sandbox session knows its workspace, and a new one makes a folder of its own.
    chooses = args.command in STARTS and (args.workspace or not args.sandbox)
    return options | ({"workspace": workspace_of(args)} if chooses else {})


def _context(options: dict[str, Any]) -> AgentContext:
    try:
        return AgentContext.model_validate(options)
    except ValidationError as error:
        fault = error.errors()[0]
        # A fault of no one option is the posture's: how `--unattended` goes with the others.
        option = str(fault["loc"][0]) if fault["loc"] else "unattended"
        raise OptionError(f"--{option.replace('_', '-')}", str(fault["msg"]).removeprefix("Value error, ")) from error
