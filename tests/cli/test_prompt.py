"""The words that decide, and the ways out that decide nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from checkpoints.clock import SystemClock
from graphs.cli.face import PlainText
from graphs.cli.prompt import ArgumentsError, ask, asked_in, json_in, object_in, show, word_of

pytestmark = pytest.mark.anyio

KINDS = ["approve", "edit", "reject", "respond"]
VALUE: dict[str, Any] = {
    "action_requests": [
        {"name": "execute", "args": {"command": "rm -r build"}, "description": "execute\n  $ rm -r build\nworkspace: /w"},
        {"name": "write_file", "args": {"path": "a", "content": "b"}, "description": "write_file\n  path = a"},
    ],
    "review_configs": [
        {"action_name": "execute", "allowed_decisions": KINDS},
        {"action_name": "write_file", "allowed_decisions": KINDS},
    ],
    "bindings": [
        {"tool_call_id": "c1", "digest": "d1", "reason": "why"},
        {"tool_call_id": "c2", "digest": "d2", "reason": "why"},
    ],
}
FIRST, SECOND = {"tool_call_id": "c1", "digest": "d1"}, {"tool_call_id": "c2", "digest": "d2"}


class Person:
    """Types lines, then ends the input."""

    def __init__(self, lines: Iterable[str | None]) -> None:
        self._lines = iter(lines)
        self.prompts: list[str] = []

    async def read_line(self, prompt: str) -> str | None:
        self.prompts.append(prompt)
        return next(self._lines, None)


async def asked(*lines: str | None, calls: int = 1) -> tuple[list[dict[str, Any]] | None, Person]:
    person = Person(lines)
    return await ask(PlainText(SystemClock()), person.read_line, asked_in(VALUE)[:calls]), person


@pytest.mark.parametrize("line", ["approve", "yes", " Approve ", "YES\r"])
def test_only_these_words_approve(line: str) -> None:
    """S23."""
    assert word_of(line) == "approve"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "\r\n",
        "y",
        "Y\r\n",
        " y",
        "Y",
        "ok",
        "1",
        "ye\u017f",
        "\u028fes",
        "approve all",
        "a",
        "\x1b[A",
        "\u0430pprove",
        None,
    ],
)
def test_nothing_else_approves(line: str | None) -> None:
    """S23: Enter, end of input, `y` in every form, look-alikes."""
    assert word_of(line) != "approve"


@pytest.mark.parametrize(
    "lines", [("",), (None,), ("y", None), (" y", "Y\r\n", ""), ("later",), ("QUIT",), ("sure", "1", None)]
)
async def test_leaving_decides_nothing(lines: tuple[str | None, ...]) -> None:
    """S23: whatever is no decision leaves the approval pending."""
    decisions, _ = await asked(*lines)
    assert decisions is None


async def test_a_decision_is_bound_to_what_was_shown() -> None:
    """S23, EVO-13: the answer carries the call and the digest."""
    assert (await asked("y", "yes"))[0] == [{"type": "approve", **FIRST}]


async def test_leaving_in_the_middle_decides_about_none() -> None:
    decisions, _ = await asked("approve", "", calls=2)
    assert decisions is None


async def test_every_call_is_decided_in_its_own_way() -> None:
    decisions, person = await asked("approve", "reject", "not there", calls=2)
    assert decisions == [{"type": "approve", **FIRST}, {"type": "reject", "message": "not there", **SECOND}]
    assert "1/2" in person.prompts[0]
    assert "2/2" in person.prompts[1]


@pytest.mark.parametrize("word", ["reject", "respond", "edit"])
async def test_leaving_a_follow_up_question_decides_nothing(word: str) -> None:
    assert (await asked(word, None))[0] is None


async def test_a_rejection_needs_no_reason_and_a_response_needs_a_text() -> None:
    assert (await asked("no", ""))[0] == [{"type": "reject", "message": None, **FIRST}]
    assert (await asked("respond", "", "respond", "42"))[0] == [{"type": "respond", "message": "42", **FIRST}]


async def test_an_edit_is_shown_and_approved_by_word() -> None:
    """What runs is what was shown, after an edit too."""
    decisions, person = await asked("edit", "ls", "yes")
    edited = {"type": "edit", "edited_action": {"name": "execute", "args": {"command": "ls"}}, **FIRST}
    assert decisions == [edited]
    assert (await asked("edit", "ls", "y", None))[0] is None
    assert len(person.prompts) == 3


async def test_edited_arguments_that_are_no_object_are_asked_for_again() -> None:
    answers = ["approve", "edit", "{", "edit", "[]", "edit", '{"path": "z", "content": ""}', "approve"]
    decisions, _ = await asked(*answers, calls=2)
    assert decisions is not None
    assert decisions[1]["edited_action"] == {"name": "write_file", "args": {"path": "z", "content": ""}}


def test_what_is_shown_is_whole_escaped_and_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    """S31: the hostile characters are spelled out, the end of a padded command is there."""
    command = "echo \u202egnp.txt\x1b[2K" + " " * 5000 + "; rm -r ~\u200b"
    value = {**VALUE, "action_requests": [{"name": "execute", "args": {"command": command}, "description": command}] * 2}
    show(PlainText(SystemClock()), asked_in(value)[:1])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<U+202E>" in text
    assert "; rm -r ~<U+200B>" in text
    assert "WARNING" in text


def test_json_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(ArgumentsError, match="not JSON"):
        json_in("{'a': 1}", "arguments")
    with pytest.raises(ArgumentsError, match="not JSON"):
        json_in("[" * 100_000, "arguments")
    with pytest.raises(ArgumentsError, match="list"):
        object_in("[]", "arguments")


@pytest.mark.parametrize(("line", "scope"), [("approve session", "session"), (" Approve  ALWAYS\r", "always")])
async def test_an_approval_can_be_given_once_for_all(line: str, scope: str) -> None:
    """Issue: `session` and `always` grants; a bare `session` or `always` decides nothing."""
    decisions, _ = await asked("always", "session", line)
    assert decisions == [{"type": "approve", "remember": scope, **FIRST}]
