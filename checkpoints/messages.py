"""The conversation as a channel: only what is new is stored each step, and a full snapshot now and then.

A fixed distance between snapshots would still make storage quadratic. Here a snapshot is due when as many messages came
since the last one as that one held, so all snapshots together are at most twice the conversation, and rebuilding it reads
at most one snapshot and as many messages again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, cast

from langchain_core.messages import AnyMessage, BaseMessage, RemoveMessage, convert_to_messages
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import PendingWrite
from langgraph.errors import InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

FEWEST = 32
"""No snapshot before so many messages have come."""

NEVER = 2**31

Reducer = Callable[[Any, Sequence[Any]], Any]


def fold_messages(state: Sequence[AnyMessage], writes: Sequence[Any]) -> list[AnyMessage]:
    """Adds writes to a conversation, one message after the other.

    A message whose id is there already replaces it in its place; `RemoveMessage` takes its target out (none: nothing
    happens), with the id `REMOVE_ALL_MESSAGES` everything so far; anything else is appended. Each message is folded in by
    itself, so it makes no difference how writes are cut into batches: fold(fold(s, a), b) == fold(s, a + b).

    Raises:
        InvalidUpdateError: A write is None, or no message; nothing is saved then.
    """
    new = [message for write in writes for message in _messages_of(write)]
    if _only_appends({message.id for message in state}, new):
        return [*state, *new]
    # Places keep their order in a dict; a removed one is deleted, a message without an id gets a place of its own.
    places: dict[Any, AnyMessage] = {message.id or index: message for index, message in enumerate(state)}
    for index, message in enumerate(new, len(state)):
        if not isinstance(message, RemoveMessage):
            places[message.id or index] = message
        elif message.id == REMOVE_ALL_MESSAGES:
            places.clear()
        else:
            places.pop(message.id, None)
    return list(places.values())


class MessagesChannel(DeltaChannel[list[AnyMessage]]):
    """`Annotated[list[AnyMessage], MessagesChannel()]`: a delta channel with `fold_messages` and doubling snapshots.

    LangGraph asks `snapshot_frequency` after each superstep and takes a snapshot when it counted that many updates since the
    last one; it makes copies by calling the class with the reducer, the type and that number. The three arguments are
    there for that and need not be given.
    """

    __slots__ = ("base", "borrowed", "fresh", "known")
    base: int
    """Messages in the last snapshot."""
    fresh: int
    """Messages that came since."""
    known: tuple[list[AnyMessage], set[str | None]] | None
    """A value and the ids in it, so that the usual update need not look at the whole conversation."""
    borrowed: bool
    """True when the ids belong to the channel that this one is a copy of, and may not be added to."""

    def __init__(
        self, reducer: Reducer = fold_messages, typ: type[Any] | None = None, *, snapshot_frequency: int = NEVER
    ) -> None:
        self.base = 0
        self.fresh = 0
        self.known = None
        self.borrowed = False
        super().__init__(reducer, typ, snapshot_frequency=snapshot_frequency)

    @property
    def snapshot_frequency(self) -> int:
        """1 when a snapshot is due, else more than LangGraph will ever count."""
        return 1 if self.fresh >= max(FEWEST, self.base) else NEVER

    @snapshot_frequency.setter
    def snapshot_frequency(self, _value: int) -> None:
        """What LangGraph passes on when it copies; the channel's own counts decide instead."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessagesChannel) and other.reducer is self.reducer

    __hash__ = object.__hash__

    def copy(self) -> Self:
        """A copy with the same value and the same distance to its next snapshot."""
        new = super().copy()
        new.base, new.fresh = self.base, self.fresh
        if self.known is not None and self.known[0] is self.value:
            # LangGraph copies the channel to let a router see a step's outcome; values are never changed in place.
            new.value, new.known, new.borrowed = self.value, self.known, True
        return new

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """A channel that starts from a snapshot, or empty."""
        new = super().from_checkpoint(checkpoint)
        new.base, new.fresh = len(new.value), 0
        return new

    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        """Applies what came since the snapshot."""
        super().replay_writes(writes)
        self.fresh += sum(_weight(value) for _, _, value in writes)

    def update(self, values: Sequence[Any]) -> bool:
        """Applies one superstep's writes. A snapshot that was due before it has been taken."""
        if self.snapshot_frequency == 1:
            self.base, self.fresh = len(self.value), 0
        self.fresh += sum(_weight(value) for value in values)
        return self._append(values) or super().update(values)

    def _append(self, values: Sequence[Any]) -> bool:
        """The usual update, new messages at the end, at a cost that does not grow with the conversation."""
        if self.reducer is not fold_messages or not self.is_available():
            return False
        if any(isinstance(value, Overwrite | dict) for value in values):
            return False
        new = [message for value in values for message in _messages_of(value)]
        if self.known is None or self.known[0] is not self.value:
            self.known, self.borrowed = (self.value, {message.id for message in self.value}), False
        ids = self.known[1]
        if not new or not _only_appends(ids, new):
            return False
        self.value = [*self.value, *new]
        if not self.borrowed:
            ids.update(message.id for message in new)
            self.known = (self.value, ids)
        return True


def _messages_of(write: Any) -> Iterator[AnyMessage]:
    if write is None:
        raise InvalidUpdateError("a node returned None for the messages: return a message or a list of messages")
    several = write if isinstance(write, list | tuple) and not _is_pair(write) else [write]
    for message in several:
        if isinstance(message, BaseMessage):
            yield cast(AnyMessage, message)
        else:
            yield _converted(message)


def _is_pair(write: Sequence[Any]) -> bool:
    """A (role, content) pair is one message, not two."""
    return isinstance(write, tuple) and len(write) == 2 and isinstance(write[0], str)


def _converted(message: Any) -> AnyMessage:
    try:
        [converted] = convert_to_messages([message])
    except (NotImplementedError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidUpdateError(f"a node returned {type(message).__name__} where a message belongs") from error
    return cast(AnyMessage, converted)


def _only_appends(known: set[str | None], new: Sequence[AnyMessage]) -> bool:
    """True when no message removes or replaces another one."""
    ids = [message.id for message in new if message.id]
    return (
        len(set(ids)) == len(ids) and known.isdisjoint(ids) and not any(isinstance(message, RemoveMessage) for message in new)
    )


def _weight(write: Any) -> int:
    value = write.value if isinstance(write, Overwrite) else write
    return len(value) if isinstance(value, list | tuple) else 1
