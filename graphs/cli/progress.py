"""A run's events as lines for a person: what is said for good, and what is going on right now. Draws nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoints.clock import Clock
from checkpoints.records import Event
from nodes.display import describe, escape_line, excerpt, shown

Tone = Literal["said", "tool", "output", "good", "bad", "quiet"]

TAIL = 6
"""Lines of a running command that are kept in view."""

RESULT_LINES = 12
RESULT_CHARACTERS = 2_000
"""What is printed of a call's result; `checkrein show` has the whole."""

UNFINISHED = 2_000
"""Characters of an unfinished line from which on it is printed as it is, so that memory and redraws stay bounded."""


@dataclass(frozen=True, slots=True)
class Line:
    """One escaped line and how it is meant."""

    text: str
    tone: Tone


LOST = Line("CONTAINMENT LOST: there is no proof that every process is gone; look for them by hand.", "bad")

LIMITS = {
    "max_iterations": "model calls",
    "max_tool_calls": "tool calls",
    "max_tokens": "tokens",
    "max_cost": "US dollars",
    "timeout": "seconds",
}


@dataclass(slots=True)
class _OpenCall:
    name: str
    since: float
    unfinished: str = ""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))


class Progress:
    """Follows one run. Feed it every event in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unsaid = ""
        self._calls: dict[str, _OpenCall] = {}
        self._model = ""
        self._since = clock.monotonic()

    def feed(self, event: Event) -> list[Line]:
        """Takes an event and gives the lines that it finishes. A kind that is not known here shows nothing."""
        tell = _TELL.get(event.kind)
        return tell(self, event.payload) if tell else []

    def saying(self) -> str:
        """The unfinished last line of the model's reply, escaped."""
        return escape_line(self._unsaid)

    def tails(self) -> list[str]:
        """The last lines of the commands that run, escaped, the unfinished one included."""
        lines = []
        for call in self._calls.values():
            lines += [*call.tail, *([escape_line(call.unfinished)] if call.unfinished else [])][-TAIL:]
        return lines

    def open_steps(self) -> list[str]:
        """What the run is at, one phrase a step, with the seconds that it has taken."""
        now = self._clock.monotonic()
        steps = [f"{escape_line(call.name)} ({now - call.since:.0f} s)" for call in self._calls.values()]
        waiting = f"{escape_line(self._model)} ({now - self._since:.0f} s)"
        return [*steps, *([waiting] if self._model else [])]

    def _token(self, payload: Mapping[str, Any]) -> list[Line]:
        *whole, self._unsaid = (self._unsaid + str(payload.get("text", ""))).split("\n")
        if len(self._unsaid) > UNFINISHED:
            whole, self._unsaid = [*whole, self._unsaid], ""
        return [said for line in whole for said in _said(line)]

    def _flush(self) -> list[Line]:
        unsaid, self._unsaid = self._unsaid, ""
        return _said(unsaid) if unsaid else []

    def _reset(self, payload: Mapping[str, Any]) -> list[Line]:
        """The attempt is void. What it said is marked as such; mostly nothing was seen of it."""
        who = f"{escape_line(str(payload['model']))} gave" if payload.get("model") else "the model gave"
        return [*self._flush(), Line(f"({who} no whole answer; another attempt follows)", "quiet")]

    def _waiting(self, payload: Mapping[str, Any]) -> list[Line]:
        self._model = f"the next attempt at {payload.get('model') or 'the model'}"
        self._since = self._clock.monotonic()
        pause = f"{_number(payload.get('seconds'))} s before the next attempt"
        return [*self._flush(), Line(f"Waiting {pause} ({escape_line(str(payload.get('cause', 'it failed')))}).", "quiet")]

    def _asked(self, payload: Mapping[str, Any]) -> list[Line]:
        self._model = f"waiting for {payload.get('model') or 'the model'}"
        self._since = self._clock.monotonic()
        return self._flush()

    def _attempt(self, payload: Mapping[str, Any]) -> list[Line]:
        if payload.get("status") == "completed":
            return []
        reason = escape_line(str(payload.get("detail") or payload.get("cause") or "no reason was given"))
        return [*self._flush(), Line(f"The model gave no answer: {reason}", "bad")]

    def _reply(self, _payload: Mapping[str, Any]) -> list[Line]:
        self._model = ""
        return self._flush()

    def _start(self, payload: Mapping[str, Any]) -> list[Line]:
        name, args = str(payload.get("name", "tool")), payload.get("args")
        self._calls[str(payload.get("tool_call_id"))] = _OpenCall(name, self._clock.monotonic())
        what = describe(name, args if isinstance(args, Mapping) else {})
        return [*self._flush(), *(Line(line, "tool") for line in excerpt(what.text, RESULT_CHARACTERS).split("\n"))]

    def _output(self, payload: Mapping[str, Any]) -> list[Line]:
        call = self._calls.get(str(payload.get("tool_call_id")))
        if call is None:
            return []
        # A carriage return ends a line here, so that a progress bar shows its newest state and nothing can be overwritten.
        *whole, unfinished = (call.unfinished + str(payload.get("text", ""))).replace("\r", "\n").split("\n")
        call.unfinished = unfinished[-UNFINISHED:]
        call.tail.extend(escape_line(line[-UNFINISHED:]) for line in whole[-4 * TAIL :] if line)
        return []

    def _complete(self, payload: Mapping[str, Any]) -> list[Line]:
        call = self._calls.pop(str(payload.get("tool_call_id")), None)
        took = f" after {self._clock.monotonic() - call.since:.1f} s" if call else ""
        failed = bool(payload.get("is_error"))
        name = escape_line(str(payload.get("name", "tool")))
        result = excerpt(shown(str(payload.get("result", ""))).text, RESULT_CHARACTERS).strip("\n").split("\n")
        hidden = len(result) - RESULT_LINES
        if hidden > 0:
            result = [f"<{hidden} lines before these>", *result[-RESULT_LINES:]]
        ending = Line(f"{name} {'failed' if failed else 'done'}{took}", "bad" if failed else "good")
        details = payload.get("details")
        doubt = [LOST] if isinstance(details, Mapping) and details.get("empty") is False else []
        return [*(Line(f"  {line}", "output") for line in result), ending, *doubt]

    def _limit(self, payload: Mapping[str, Any]) -> list[Line]:
        what = LIMITS.get(str(payload.get("limit")), escape_line(str(payload.get("limit"))))
        used, limit = (_number(payload.get(key)) for key in ("used", "of"))
        return [*self._flush(), Line(f"Most of a limit is used up: {used} of {limit} {what}.", "bad")]

    def _compacted(self, payload: Mapping[str, Any]) -> list[Line]:
        replaced, kept = payload.get("replaced", "some"), payload.get("kept", "the others")
        text = f"(the conversation grew too long for the model: a summary replaces {replaced} messages, {kept} are kept)"
        return [*self._flush(), Line(escape_line(text), "quiet")]

    def _recovered(self, _payload: Mapping[str, Any]) -> list[Line]:
        """The former owner's calls are over: what of them is not known is asked about."""
        self._calls.clear()
        self._model = ""
        return [*self._flush(), Line("The process that ran this died; another one goes on from the last checkpoint.", "bad")]

    def _terminal(self, _payload: Mapping[str, Any]) -> list[Line]:
        """A call that the run's ending cut off leaves the last lines of its output."""
        tails = [Line(f"  {line}", "output") for line in self.tails()]
        self._calls.clear()
        self._model = ""
        return [*self._flush(), *tails]


def _number(value: object) -> str:
    """A number as people write it; whatever else came in its place, escaped."""
    try:
        return f"{float(str(value)):,.10g}"
    except ValueError:
        return escape_line(str(value))


def _said(text: str) -> list[Line]:
    safe = shown(text.removesuffix("\r"))
    return [*(Line(line, "said") for line in safe.lines()), *(Line(f"({warning})", "bad") for warning in safe.warnings)]


_TELL = {
    "token": Progress._token,  # noqa: SLF001 (the table belongs to the class)
    "stream_reset": Progress._reset,  # noqa: SLF001
    "model_waiting": Progress._waiting,  # noqa: SLF001
    "model_started": Progress._asked,  # noqa: SLF001
    "model_attempt": Progress._attempt,  # noqa: SLF001
    "model_reply": Progress._reply,  # noqa: SLF001
    "tool.start": Progress._start,  # noqa: SLF001
    "output": Progress._output,  # noqa: SLF001
    "tool.complete": Progress._complete,  # noqa: SLF001
    "limit_warning": Progress._limit,  # noqa: SLF001
    "compacted": Progress._compacted,  # noqa: SLF001
    "run_recovered": Progress._recovered,  # noqa: SLF001
    "run_terminal": Progress._terminal,  # noqa: SLF001
}


def conclusion(payload: Mapping[str, Any]) -> list[Line]:
    """How a run ended, from its terminal event's payload."""
    outcome = str(payload.get("outcome", ""))
    lines = [
        Line(_ENDINGS.get(outcome, f"The run ended: {escape_line(outcome)}."), "good" if outcome == "completed" else "bad")
    ]
    if outcome == "completed" and not payload.get("completed", True):
        lines = [Line(f"The run stopped at a limit: {escape_line(str(payload.get('turn_exit_reason')))}.", "bad")]
    error = payload.get("error")
    if isinstance(error, Mapping):
        lines += [
            Line(f"  {text}", "bad") for key in ("message", "hint") for text in shown(str(error.get(key, ""))).lines() if text
        ]
    if payload.get("reason"):
        lines.append(Line(f"  Reason: {escape_line(str(payload['reason']))}", "quiet"))
    doubts = payload.get("cleanup_errors") or ()
    return [*lines, *([LOST] if doubts else []), *(Line(f"  {escape_line(str(note))}", "bad") for note in doubts)]


_ENDINGS = {
    "completed": "Completed.",
    "awaiting_input": "The run waits for a decision; nothing of it is running.",
    "cancelled": "Cancelled.",
    "timeout": "The run's time was over; everything that it had started was stopped.",
    "failed": "The run failed.",
}
