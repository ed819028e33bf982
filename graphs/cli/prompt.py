"""Asks a person about calls that wait. Only an explicit word approves; whatever is not a decision leaves everything pending."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from checkpoints.errors import UsageError
from graphs.cli.face import Face
from graphs.cli.keyboard import ReadLine
from nodes.display import describe, escape_line, shown

Word = Literal["approve", "approve session", "approve always", "edit", "reject", "respond", "later"]
Memory = Literal["session", "always"]

WORDS: Mapping[str, Word] = {
    "approve": "approve",
    "yes": "approve",
    "approve session": "approve session",
    "approve always": "approve always",
    "edit": "edit",
    "reject": "reject",
    "no": "reject",
    "respond": "respond",
    "later": "later",
    "quit": "later",
    "": "later",
}
"""What may be typed. Letter case and blanks around a word do not matter. `y` is missing on purpose: one key is typed by
accident, and a keyboard's echo of something else must not run a command."""

Decision = dict[str, Any]


def word_of(line: str | None) -> Word | None:
    """The word that a line means, `later` for the end of input, None for a line that means nothing."""
    return "later" if line is None else WORDS.get(" ".join(line.lower().split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call that waits, as it is shown.

    Attributes:
        name: The tool.
        args: Its arguments.
        description: What a person reads, escaped.
        allowed: Decisions that are open for it.
        call_id: The tool call's id.
        digest: What an approval is bound to.
    """

    name: str
    args: Mapping[str, Any]
    description: str
    allowed: Sequence[str]
    call_id: str
    digest: str

    @property
    def seen(self) -> Decision:
        """What every decision carries, so that it holds for what was shown and for nothing else."""
        return {"tool_call_id": self.call_id, "digest": self.digest}


def asked_in(value: Mapping[str, Any]) -> list[Asked]:
    """The calls of an interrupt's value."""
    parts = zip(value["action_requests"], value["review_configs"], value["bindings"], strict=True)
    return [
        Asked(
            name=request["name"],
            args=request["args"],
            description=request["description"],
            allowed=review["allowed_decisions"],
            call_id=binding["tool_call_id"],
            digest=binding["digest"],
        )
        for request, review, binding in parts
    ]


def show(face: Face, asked: Sequence[Asked]) -> None:
    """Shows what will run, every call whole, with what is wrong about the look of it."""
    for number, call in enumerate(asked, 1):
        face.say(f"Waiting for you, call {number} of {len(asked)} ({escape_line(call.call_id)}):", "bad")
        for line in shown(call.description).lines():
            face.say(f"  {line}", "tool")
        _warn(face, [text for text in describe(call.name, call.args).warnings if text not in call.description])


async def ask(face: Face, read_line: ReadLine, asked: Sequence[Asked]) -> list[Decision] | None:
    """One decision for each call, or None when the person leaves: then nothing was decided about any of them."""
    conversation = _Conversation(face, read_line)
    try:
        return [
            await conversation.decide(call, f" {number}/{len(asked)}" if len(asked) > 1 else "")
            for number, call in enumerate(asked, 1)
        ]
    except _Left:
        return None


class _Left(Exception):  # noqa: N818 (not an error: the person's choice)
    """The person left without a decision."""


class _Conversation:
    """The questions about one approval."""

    def __init__(self, face: Face, read_line: ReadLine) -> None:
        self._face = face
        self._read_line = read_line

    async def decide(self, call: Asked, place: str) -> Decision:
        """Asks until there is a decision.

        Raises:
            _Left: There will be none.
        """
        words = ", ".join([*call.allowed, "later"])
        while True:
            word = word_of(await self._line(f"{call.name}{place}: {words}? "))
            if word == "later":
                raise _Left
            if word is None or word.split()[0] not in call.allowed:
                self._face.say(f"Nothing was decided. Type one of these words: {words}.", "bad")
                continue
            decision = await self._details(call, word)
            if decision is not None:
                return decision

    async def _line(self, prompt: str) -> str:
        line = await self._read_line(prompt)
        if line is None:
            raise _Left
        return line

    async def _details(self, call: Asked, word: Word) -> Decision | None:
        """The decision whole, or None to ask again."""
        match word:
            case "reject":
                reason = await self._line("Reason for the model (may be empty): ")
                return reject_of(call, reason)
            case "respond":
                message = await self._line("Result for the model: ")
                return respond_of(call, message) if message else None
            case "edit":
                return await self._edited(call)
            case "approve session":
                return approve_of(call, "session")
            case "approve always":
                return approve_of(call, "always")
            case _:
                return approve_of(call)

    async def _edited(self, call: Asked) -> Decision | None:
        args = await self._new_arguments(call)
        if args is None:
            return None
        show_edit(self._face, call, args)
        if word_of(await self._line("approve this? ")) == "approve":
            return edit_of(call, args)
        self._face.say("Nothing was decided.", "bad")
        return None

    async def _new_arguments(self, call: Asked) -> Mapping[str, Any] | None:
        if "command" in call.args:
            line = await self._line("New command: ")
            return {**call.args, "command": line} if line else None
        try:
            return object_in(await self._line("New arguments, a JSON object: "), "arguments")
        except ArgumentsError as error:
            self._face.say(f"{error} {error.hint}", "bad")
            return None


class ArgumentsError(UsageError):
    """A text that should be JSON of a certain shape and is not."""

    code = "arguments"

    def __init__(self, what: str, problem: str, hint: str) -> None:
        self.what = what
        self.problem = problem
        self.hint = hint
        super().__init__(f"The {what} cannot be read: {problem}.")


def object_in(text: str, what: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ArgumentsError: The text is no JSON, or not an object.
    """
    value = json_in(text, what)
    if not isinstance(value, dict):
        raise ArgumentsError(what, f"they are a JSON {type(value).__name__}", 'Give one object, for example {"command": "ls"}.')
    return value


def json_in(text: str, what: str) -> Any:
    """A JSON value.

    Raises:
        ArgumentsError: The text is no JSON.
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ArgumentsError(what, f"they are not JSON ({error})", "Check quotes and brackets; nothing was decided.") from error


def show_edit(face: Face, call: Asked, args: Mapping[str, Any]) -> None:
    """Shows what will run in place of a call."""
    safe = describe(call.name, args)
    face.say(f"This will run instead of {escape_line(call.call_id)}:", "bad")
    for line in safe.lines():
        face.say(f"  {line}", "tool")
    _warn(face, safe.warnings)


def _warn(face: Face, warnings: Sequence[str]) -> None:
    for warning in warnings:
        face.say(f"  WARNING: {warning}", "bad")


def approve_of(call: Asked, remember: Memory | None = None) -> Decision:
    """The decision that a call runs as it was shown, and that the same call need not ask again."""
    return {"type": "approve", **call.seen, **({"remember": remember} if remember else {})}


def reject_of(call: Asked, reason: str) -> Decision:
    """The decision that a call does not run."""
    return {"type": "reject", "message": reason or None, **call.seen}


def respond_of(call: Asked, message: str) -> Decision:
    """The decision that a person gives the call's result."""
    return {"type": "respond", "message": message, **call.seen}


def edit_of(call: Asked, args: Mapping[str, Any]) -> Decision:
    """The decision that other arguments run."""
    return {"type": "edit", "edited_action": {"name": call.name, "args": dict(args)}, **call.seen}
