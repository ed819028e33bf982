"""The script that a scripted model plays: its values, its file format (TOML), and which reply answers which request.

A file is a list of replies, played in order:

    [[replies]]
    when = { user_contains = "tests", tool_results = 0 }
    text = "I will run the tests."

      [[replies.calls]]
      name = "execute"
      arguments = { command = "pytest -q" }

    [[replies]]
    text = "All green."
    usage = { input = 40, output = 5 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from checkpoints.errors import UsageError

Seconds = Annotated[float, Field(ge=0, le=86_400)]


class ScriptError(UsageError):
    """A script file that cannot be read or does not fit the format. It names the file and every wrong place."""

    code = "script_invalid"

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        self.path = path
        self.problems = tuple(problems)
        self.hint = "Correct the places named above; the format is described in the README under scripted models."
        super().__init__(f"The script {path} cannot be used: {'; '.join(self.problems)}.")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class When(_Part):
    """What a request must be like for a reply to answer it. Every field that is set must hold.

    Attributes:
        user_contains: Words in the text of the last user message.
        tool_results: Number of tool results that follow the last user message.
        model: The model's name in the request.
    """

    user_contains: str | None = None
    tool_results: int | None = None
    model: str | None = None

    def holds(self, body: Mapping[str, Any]) -> bool:
        """Says whether a chat-completions request body fits."""
        messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
        last_user = max((place for place, message in enumerate(messages) if message.get("role") == "user"), default=-1)
        text = _text_of(messages[last_user].get("content")) if last_user >= 0 else ""
        results = sum(message.get("role") == "tool" for message in messages[last_user + 1 :])
        return (
            (self.user_contains is None or self.user_contains in text)
            and (self.tool_results is None or self.tool_results == results)
            and (self.model is None or self.model == body.get("model"))
        )


class ScriptedCall(_Part):
    """One tool call of a reply.

    Attributes:
        name: The tool's name.
        arguments: The arguments as an object. They are streamed in up to three pieces.
        fragments: The raw argument text, piece by piece as it goes on the wire; it need not be JSON.
        id: The call's id; made from the reply's number when it is missing.
    """

    name: str
    arguments: dict[str, Any] | None = None
    fragments: tuple[str, ...] | None = None
    id: str | None = None

    @model_validator(mode="after")
    def _one_kind_of_arguments(self) -> Self:
        if (self.arguments is None) == (self.fragments is None):
            msg = "give either arguments or fragments"
            raise ValueError(msg)
        return self


class ScriptedUsage(_Part):
    """The token counts that a reply reports. They are sent when the request asks for them, as real providers do."""

    input: int = Field(ge=0)
    output: int = Field(ge=0)
    cached: int | None = Field(default=None, ge=0)
    reasoning: int | None = Field(default=None, ge=0)


class ScriptedReply(_Part):
    """What one request gets: a normal answer, a fault, or both.

    Attributes:
        when: Which requests it may answer; any, when missing.
        times: How many requests it answers before it is used up; 0 means every one that fits.
        text: The answer's text.
        calls: The answer's tool calls.
        usage: Token counts.
        finish_reason: Sent at the end; `tool_calls` or `stop` by content when missing, none at all when "".
        done: Whether the stream ends with `[DONE]`.
        piece: Characters of text in one chunk; word by word when missing.
        pause: Seconds between two chunks.
        delay: Seconds before the first byte of the answer.
        status: HTTP status. Anything but 200 sends `body` and no stream.
        headers: Extra response headers.
        body: The body that goes with a status other than 200: text, or an object sent as JSON.
        raw: The body of the stream as text, packet by packet, sent as it is in place of what text and calls would make.
        split: Send the stream in packets of this many bytes.
        split_at: Send the stream in packets cut at these byte offsets.
        disconnect_after: Close the connection after this many bytes of the body.
        silent_after: Send this many bytes of the body and then nothing, with the connection open. 0 sends headers only.
        hang: Read the request and never answer.
        framing: `chunked` keeps the connection; `close` ends the body by closing it.
    """

    when: When | None = None
    times: int = Field(default=1, ge=0)
    text: str | None = None
    calls: tuple[ScriptedCall, ...] = ()
    usage: ScriptedUsage | None = None
    finish_reason: str | None = None
    done: bool = True
    piece: int | None = Field(default=None, ge=1)
    pause: Seconds = 0.0
    delay: Seconds = 0.0
    status: int = Field(default=200, ge=100, le=599)
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | dict[str, Any] | None = None
    raw: tuple[str, ...] | None = None
    split: int | None = Field(default=None, ge=1)
    split_at: tuple[int, ...] = ()
    disconnect_after: int | None = Field(default=None, ge=0)
    silent_after: int | None = Field(default=None, ge=0)
    hang: bool = False
    framing: Literal["chunked", "close"] = "chunked"


class Script(_Part):
    """Replies, in the order in which they are tried."""

    replies: tuple[ScriptedReply, ...]

    @classmethod
    def of(cls, *replies: ScriptedReply) -> Self:
        """A script from Python values."""
        return cls(replies=replies)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a script file.

        Raises:
            ScriptError: The file is missing, is not TOML, or does not fit; every wrong place is named.
        """
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return cls.model_validate(data)
        except (OSError, UnicodeDecodeError) as error:
            raise ScriptError(str(path), [f"it cannot be read ({error})"]) from error
        except tomllib.TOMLDecodeError as error:
            raise ScriptError(str(path), [f"it is not TOML: {error}"]) from error
        except ValidationError as error:
            raise ScriptError(str(path), [_problem(item) for item in error.errors()]) from error


class Player:
    """Hands out a script's replies, one a request, and remembers what is used up."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._used = [0] * len(script.replies)

    def next_reply(self, body: Mapping[str, Any]) -> ScriptedReply | None:
        """The first reply that is not used up and fits the request, or None when the script has no answer."""
        for place, reply in enumerate(self._script.replies):
            if reply.times and self._used[place] >= reply.times:
                continue
            if reply.when is None or reply.when.holds(body):
                self._used[place] += 1
                return reply
        return None

    @property
    def remaining(self) -> int:
        """Replies that are not used up, the unlimited ones not counted."""
        return sum(max(reply.times - used, 0) for reply, used in zip(self._script.replies, self._used, strict=True))


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else ()
    return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _problem(item: Any) -> str:
    place = ""
    for step in item["loc"]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else str(step)
    return f"{place or 'the file'}: {item['msg']}"
