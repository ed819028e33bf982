"""The model's part of a conversation, kept as a script file that can be replayed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from checkpoints.errors import UsageError
from checkpoints.redaction import secret_values
from nodes.models.chat_models import ChatModels
from nodes.models.record import Recorder
from nodes.models.spec import ModelSpec
from nodes.models.wire import Watch


class RecordFileError(UsageError):
    """The recording cannot be kept where it was asked for. Nothing was run."""

    code = "record_file"
    hint = "Name a new file in a folder that is there; a recording never replaces a file."

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        super().__init__(f"The recording cannot be written to {path}: {error.strerror or error}.")


class RecordedModels(ChatModels):
    """Asks like every other, and remembers each attempt, free of the secrets of the process's environment."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder(super().ask, secrets=secret_values(os.environ))

    async def ask(
        self, spec: ModelSpec, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]], watch: Watch
    ) -> AIMessage:
        """One attempt, recorded; see `ChatModels.ask`."""
        return await self.recorder.ask(spec, messages, tools, watch)


@contextmanager
def recorded_to(path: Path) -> Iterator[RecordedModels]:
    """Keeps what is asked inside the block as a script, also when the block ends with an error. Short and blocking.

    The file is made at once, readable for this user only, so that a place that cannot be written shows before a run costs
    anything.

    Raises:
        RecordFileError: The file is there already, or cannot be made.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise RecordFileError(path, error) from error
    models = RecordedModels()
    try:
        yield models
    finally:
        models.recorder.save(path)
