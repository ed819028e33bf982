"""Puts the fragments of streamed tool calls together without trusting the provider's indexes and ids.

A fragment names its call by id, by index, by both or by neither. An id that is known or new decides. Without an id the index
decides, and without an index the order of arrival. Where two unfinished calls could own a fragment, nobody can tell, and
the whole answer is refused: running a call with another one's arguments is worse than running nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoints.clock import fresh_id
from nodes.models.arguments import UnusableArgumentsError, bounded, is_complete_object, parse_arguments
from nodes.models.text import whole_text

MAX_CALLS = 256
MAX_NAME = 256
MAX_ARGUMENTS = 8 * 1024 * 1024


class AmbiguousCallsError(Exception):
    """What the fragments mean cannot be known. Raised to the stream's reader, which names the model."""


@dataclass(slots=True)
class _Open:
    id: str
    index: int | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    complete_at: tuple[int, bool] = (0, False)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def is_complete(self) -> bool:
        """Whether the arguments so far are a whole object; read once for each length, for it is asked once a fragment."""
        if self.complete_at[0] != self.size:
            self.complete_at = (self.size, is_complete_object(self.text))
        return self.complete_at[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """A call that may run, once it is allowed to.

    Attributes:
        id: Unique among the calls of the conversation.
        name: The tool's name, never empty.
        arguments: The parsed object.
    """

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableCall:
    """A call whose arguments are not an object. It is answered with an error result and never runs.

    Attributes:
        id: Unique among the calls of the conversation.
        name: The tool's name, never empty.
        raw: The argument text, bounded.
        reason: Why it cannot run, in words for the model.
    """

    id: str
    name: str
    raw: str
    reason: str


class CallAssembler:
    """Takes fragments in order of arrival and gives the calls at the end.

    Args:
        tools: For each tool that was offered, whether its schema accepts no arguments. None means the tools are not known.
    """

    __slots__ = ("_calls", "_size", "_tools")

    def __init__(self, tools: Mapping[str, bool] | None = None) -> None:
        self._tools = tools
        self._calls: list[_Open] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def characters(self) -> int:
        """Characters of names and arguments so far, for estimates of an answer that was cut."""
        return self._size

    def feed(self, fragment: object) -> None:
        """Adds one item of a delta's `tool_calls`.

        Raises:
            AmbiguousCallsError: The fragment breaks the wire's types, its bounds, or could belong to more than one call.
        """
        if not isinstance(fragment, dict):
            msg = "a tool call fragment is not an object"
            raise AmbiguousCallsError(msg)
        function = fragment.get("function") or {}
        if not isinstance(function, dict):
            msg = "a tool call's function is not an object"
            raise AmbiguousCallsError(msg)
        call_id = _string(fragment.get("id"), "id")
        name = _string(function.get("name"), "name")
        piece = _arguments(function.get("arguments"))
        index = _index(fragment.get("index"))
        if not (call_id or name or piece):
            return
        self._bound(len(name) + len(piece), name)
        call = self._owner(call_id, index, name, piece)
        self._name(call, name)
        if piece:
            call.pieces.append(piece)
            call.size += len(piece)

    def finish(self, *, cut: bool, taken: Collection[str] = ()) -> tuple[list[FinishedCall], list[UnusableCall]]:
        """Closes every call.

        Args:
            cut: The provider said that the answer hit its length limit: an empty argument text then proves nothing.
            taken: Ids that the conversation already uses; a call with one of them gets a fresh id.

        Raises:
            AmbiguousCallsError: A call has arguments and no name.
        """
        used = set(taken)
        finished: list[FinishedCall] = []
        unusable: list[UnusableCall] = []
        for call in self._calls:
            name = whole_text(call.name).strip()
            if not name:
                if call.text.strip():
                    msg = "a tool call has arguments and no name"
                    raise AmbiguousCallsError(msg)
                continue
            call_id = _unique(whole_text(call.id), used)
            try:
                may_be_empty = not cut and self._accepts_empty(name)
                arguments = parse_arguments(call.text, may_be_empty=may_be_empty)
            except UnusableArgumentsError as error:
                unusable.append(UnusableCall(id=call_id, name=name, raw=bounded(call.text), reason=str(error)))
            else:
                finished.append(FinishedCall(id=call_id, name=name, arguments=arguments))
        return finished, unusable

    def _owner(self, call_id: str, index: int | None, name: str, piece: str) -> _Open:
        if call_id:
            return self._by_id(call_id, index, name, piece)
        if index is not None:
            return self._by_index(index, name, piece)
        return self._by_order(name, piece)

    def _by_id(self, call_id: str, index: int | None, name: str, piece: str) -> _Open:
        known = [call for call in self._calls if call.id == call_id]
        same_place = [call for call in known if index is None or call.index is None or call.index == index]
        if same_place:
            call = self._last(same_place, piece)
            call.index = index if call.index is None else call.index
            return call
        if known:
            if not name:
                msg = f"the tool call id {call_id[:80]!r} moves to another index"
                raise AmbiguousCallsError(msg)
            return self._open(call_id, index)
        nameless = [call for call in self._calls if not call.id and call.index == index]
        if nameless and not self._starts_anew(nameless[-1], name, piece):
            nameless[-1].id = call_id
            return nameless[-1]
        return self._open(call_id, index)

    def _by_index(self, index: int, name: str, piece: str) -> _Open:
        there = [call for call in self._calls if call.index == index]
        if not there:
            unplaced = [call for call in self._calls if call.index is None]
            if len(self._calls) == 1 and unplaced and not self._starts_anew(unplaced[0], name, piece):
                unplaced[0].index = index
                return unplaced[0]
            return self._open("", index)
        return self._continued(there, name, piece, index)

    def _by_order(self, name: str, piece: str) -> _Open:
        return self._continued(self._calls, name, piece, None) if self._calls else self._open("", None)

    def _continued(self, candidates: list[_Open], name: str, piece: str, index: int | None) -> _Open:
        last = candidates[-1]
        if self._starts_anew(last, name, piece):
            if last.size and not last.is_complete():
                msg = f"a tool call named {name[:80]!r} starts inside another one's arguments"
                raise AmbiguousCallsError(msg)
            return self._open("", index)
        return self._last(candidates, piece)

    def _last(self, candidates: list[_Open], piece: str) -> _Open:
        """The call that a fragment goes on with, when no other candidate still waits for arguments."""
        if piece and any(self._unfinished(call) for call in candidates[:-1]):
            msg = "a piece of arguments names neither of two unfinished tool calls"
            raise AmbiguousCallsError(msg)
        return candidates[-1]

    def _starts_anew(self, call: _Open, name: str, piece: str) -> bool:
        """Whether a name that comes with a fragment opens a call, rather than naming this one once more."""
        if not name or not call.name:
            return False
        if call.size and call.is_complete():
            return bool(piece.strip()) or name != call.name
        if name == call.name:
            return False
        return bool(call.size) or not self._is_piece_of_name(call.name, name)

    def _is_piece_of_name(self, start: str, piece: str) -> bool:
        return self._tools is None or (start not in self._tools and start + piece in self._tools)

    def _unfinished(self, call: _Open) -> bool:
        return not (call.is_complete() if call.size else self._accepts_empty(call.name))

    def _accepts_empty(self, name: str) -> bool:
        return self._tools is not None and self._tools.get(name, False)

    def _name(self, call: _Open, name: str) -> None:
        if not name or name == call.name:
            return
        if call.name and (call.size or not self._is_piece_of_name(call.name, name)):
            msg = f"one tool call has two names, {call.name[:80]!r} and {name[:80]!r}"
            raise AmbiguousCallsError(msg)
        call.name += name

    def _open(self, call_id: str, index: int | None) -> _Open:
        if len(self._calls) >= MAX_CALLS:
            msg = f"the answer has more than {MAX_CALLS} tool calls"
            raise AmbiguousCallsError(msg)
        call = _Open(id=call_id, index=index)
        self._calls.append(call)
        return call

    def _bound(self, more: int, name: str) -> None:
        self._size += more
        if self._size > MAX_ARGUMENTS or len(name) > MAX_NAME:
            msg = f"a tool call is larger than {MAX_ARGUMENTS} characters or its name than {MAX_NAME}"
            raise AmbiguousCallsError(msg)


def _unique(call_id: str, used: set[str]) -> str:
    if not call_id or call_id in used:
        call_id = f"call_{fresh_id()}"
    used.add(call_id)
    return call_id


def _string(value: object, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        msg = f"a tool call's {what} is not text"
        raise AmbiguousCallsError(msg)
    return value


def _arguments(value: object) -> str:
    """The argument piece as text. Some gateways send the object itself instead of its text."""
    if not isinstance(value, dict):
        return _string(value, "arguments")
    try:
        return json.dumps(value)
    except RecursionError:
        msg = "a tool call's arguments are nested too deep"
        raise AmbiguousCallsError(msg) from None


def _index(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:9])
    msg = "a tool call's index is not a number"
    raise AmbiguousCallsError(msg)
