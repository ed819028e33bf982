"""Events as lines: what is said for good, what is in view, and hostile text in both."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

from checkpoints.records import Event
from graphs.cli.jsonlines import write_line
from graphs.cli.progress import TAIL, Progress, conclusion

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.seconds


def event(kind: str, **payload: Any) -> Event:
    return Event(run_id="r", seq=1, kind=kind, payload=payload, at=NOW)


def fed(progress: Progress, *events: Event) -> list[str]:
    return [line.text for item in events for line in progress.feed(item)]


def test_a_line_of_the_reply_is_said_when_it_is_whole() -> None:
    progress = Progress(Clock())
    assert fed(progress, event("token", text="Hel")) == []
    assert progress.saying() == "Hel"
    assert fed(progress, event("token", text="lo\nwor")) == ["Hello"]
    assert fed(progress, event("token", text="ld"), event("model_reply")) == ["world"]
    assert progress.saying() == ""


def test_a_restarted_reply_is_marked() -> None:
    lines = fed(Progress(Clock()), event("token", text="half"), event("stream_reset"), event("token", text="whole\n"))
    assert lines[0] == "half"
    assert "another attempt follows" in lines[1]
    assert lines[2] == "whole"


def test_a_running_command_shows_its_last_lines_and_seconds() -> None:
    clock = Clock()
    progress = Progress(clock)
    start = event("tool.start", tool_call_id="c", name="execute", args={"command": "make"})
    assert fed(progress, start) == ["execute", "  $ make"]
    clock.seconds = 3.0
    fed(progress, event("output", tool_call_id="c", text="".join(f"line {number}\n" for number in range(20))))
    fed(progress, event("output", tool_call_id="c", text="10%\r20%\r30%"))
    assert len(progress.tails()) == TAIL
    assert progress.tails()[-2:] == ["20%", "30%"]
    assert progress.open_steps() == ["execute (3 s)"]
    lines = fed(
        progress, event("tool.complete", tool_call_id="c", name="execute", is_error=True, result="boom\n[exit code 2.]")
    )
    assert lines == ["  boom", "  [exit code 2.]", "execute failed after 3.0 s"]
    assert progress.tails() == progress.open_steps() == []


def test_a_long_result_keeps_its_end() -> None:
    result = "\n".join(f"line {number}" for number in range(100))
    lines = fed(Progress(Clock()), event("tool.complete", tool_call_id="c", name="execute", result=result))
    assert lines[-2] == "  line 99"
    assert len(lines) < 20


def test_hostile_text_cannot_drive_the_terminal() -> None:
    """S31: in tokens, output, arguments, results and endings."""
    bad = "\x1b[2K\x07\u202e\u200b"
    progress = Progress(Clock())
    lines = fed(
        progress,
        event("token", text=f"{bad}\n{bad}"),
        event("tool.start", tool_call_id="c", name=bad, args={"command": bad}),
        event("output", tool_call_id="c", text=f"{bad}\n{bad}"),
    )
    lines += [progress.saying(), *progress.tails(), *progress.open_steps()]
    lines += fed(progress, event("tool.complete", tool_call_id="c", name=bad, result=bad))
    ending = {"outcome": "failed", "error": {"message": bad, "hint": bad}, "reason": bad, "cleanup_errors": [bad]}
    lines += [line.text for line in conclusion(ending)]
    assert all(char not in line for line in lines for char in bad if not char.isascii() or not char.isprintable())


def test_endless_lines_stay_bounded() -> None:
    progress = Progress(Clock())
    fed(progress, event("tool.start", tool_call_id="c", name="execute", args={}))
    for _ in range(50):
        fed(progress, event("token", text="x" * 1000), event("output", tool_call_id="c", text="y" * 1000))
    assert len(progress.saying()) <= 3000
    assert sum(map(len, progress.tails())) <= 3000


def test_unknown_kinds_and_missing_fields_are_passed_over() -> None:
    progress = Progress(Clock())
    kinds = ["brand_new", "token", "output", "tool.start", "tool.complete", "stream_reset", "model_started", "model_waiting"]
    kinds += ["limit_warning", "compacted", "run_recovered", "run_terminal"]
    for kind in kinds:
        progress.feed(event(kind))
    assert progress.open_steps() == []


def test_endings_say_limit_reason_and_doubt() -> None:
    limit = [
        line.text
        for line in conclusion({"outcome": "completed", "completed": False, "turn_exit_reason": "max_turns_reached(3/3)"})
    ]
    assert limit == ["The run stopped at a limit: max_turns_reached(3/3)."]
    doubt = [
        line.text for line in conclusion({"outcome": "cancelled", "reason": "why", "cleanup_errors": ["containment lost"]})
    ]
    assert doubt[:2] == ["Cancelled.", "  Reason: why"]
    assert doubt[2].startswith("CONTAINMENT LOST")
    assert doubt[3:] == ["  containment lost"]


def test_a_call_whose_processes_are_not_proven_gone_is_said_loudly() -> None:
    complete = {"tool_call_id": "c", "name": "execute", "is_error": False, "result": "[exit code 0.]"}
    assert "CONTAINMENT LOST" not in "".join(fed(Progress(Clock()), event("tool.complete", **complete)))
    lines = fed(Progress(Clock()), event("tool.complete", **complete, details={"empty": False}))
    assert lines[-1].startswith("CONTAINMENT LOST")


def test_waits_limits_summaries_and_take_overs_are_told_in_plain_words() -> None:
    clock = Clock()
    progress = Progress(clock)
    lines = fed(
        progress,
        event("stream_reset", attempt=1, model="small", cause="model_status"),
        event("model_waiting", model="small", seconds=2.5, cause="model_status"),
    )
    assert lines == [
        "(small gave no whole answer; another attempt follows)",
        "Waiting 2.5 s before the next attempt (model_status).",
    ]
    clock.seconds = 1.0
    assert progress.open_steps() == ["the next attempt at small (1 s)"]
    assert fed(progress, event("limit_warning", limit="max_tokens", used="8123", of="10000")) == [
        "Most of a limit is used up: 8,123 of 10,000 tokens."
    ]
    [summary] = fed(progress, event("compacted", replaced=40, kept=6, summary_characters=900))
    assert "a summary replaces 40 messages, 6 are kept" in summary
    fed(progress, event("tool.start", tool_call_id="c", name="execute", args={"command": "make"}))
    [line] = fed(progress, event("run_recovered"))
    assert "died" in line
    assert progress.open_steps() == []


def test_a_json_line_is_one_line_of_ascii_whatever_it_holds() -> None:
    """S75: separators, lone surrogates and control characters stay inside the string."""
    text = "a\nb\r\u2028\u2029\x85\x1b\udc80\u202e é 漢"
    written = io.StringIO()
    write_line({"text": text}, written)
    assert written.getvalue().isascii()
    assert written.getvalue().splitlines() == [written.getvalue().removesuffix("\n")]
    assert json.loads(written.getvalue())["text"] == text
