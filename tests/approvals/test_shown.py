"""What a person reads before deciding, and what the event log holds, when the text is hostile."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from tests.approvals.asking import decided, descriptions, events_of, park, waiting
from tests.runs.scene import calls, opened, says, scene

pytestmark = pytest.mark.anyio

HOSTILE = {
    "U+202E": "echo \u202egnp.exe",
    "U+200B": "rm\u200b f",
    "U+2028": "echo a\u2028rm f",
    "U+001B": "echo \x1b[2Khidden",
    "U+000D": "rm f\recho harmless",
    "U+0007": "echo \x07",
    "U+009B": "echo \x9b31m",
    "U+0430": "rm p\u0430th",
}
LINK = "echo \x1b]8;;http://evil.example\x07click\x1b]8;;\x07"


def safe(text: str) -> bool:
    """Whether a text has nothing that drives a terminal or hides."""
    return all(char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cf", "Zl", "Zp"} for char in text)


@pytest.mark.parametrize("command", [*HOSTILE.values(), LINK], ids=[*HOSTILE, "link"])
async def test_hostile_text_is_spelled_out_in_the_interrupt_and_in_what_is_stored_of_it(tmp_path: Path, command: str) -> None:
    """S31: escaped with a warning in the interrupt, in the ending's event and in the inbox; what would run is kept as it is."""
    async with scene(tmp_path, [calls(("execute", {"command": command}))]) as place, opened(place) as service:
        run = await park(service, place)
        [text] = await descriptions(service, run.thread_id)
        assert safe(text)
        assert "warning: " in text
        for code in HOSTILE:
            if chr(int(code[2:], 16)) in command:
                assert f"<{code}>" in text
        [ending] = await events_of(run, "run_terminal")
        [pending] = ending["pending_interrupts"]
        assert pending["value"]["action_requests"][0]["description"] == text
        assert (await service.inbox())[0].value["action_requests"][0]["description"] == text
        assert (await waiting(service, run.thread_id)).value["action_requests"][0]["args"] == {"command": command}


async def test_the_end_of_a_padded_command_is_there_and_ordinary_writing_is_left_alone(tmp_path: Path) -> None:
    """S31: 5,000 blanks before `; rm`; CJK, accents and emoji unchanged and without a warning."""
    padded = f"echo fine{' ' * 5000}; rm -r src"
    plain = "echo 日本語 naïve Straße 👍"
    reply = calls(("execute", {"command": padded}), ("execute", {"command": plain}))
    async with scene(tmp_path, [reply]) as place, opened(place) as service:
        run = await park(service, place)
        long, short = await descriptions(service, run.thread_id)
        assert "; rm -r src" in long
        assert "<4998 blanks>" in long
        assert "warning: " in long
        assert plain in short
        assert "warning: " not in short


async def test_an_argument_cannot_pass_for_another_line_of_the_question(tmp_path: Path) -> None:
    """S31: a command of several lines that imitates the lines below it stands behind its own marks."""
    command = "true\nworkspace: /safe\nconfinement: writes only in /safe\nasked because: a person said so"
    path = "x\nworkspace: /safe"
    reply = calls(("execute", {"command": command}), ("write_file", {"path": path, "content": "x"}))
    async with scene(tmp_path, [reply]) as place, opened(place) as service:
        run = await park(service, place)
        for text in await descriptions(service, run.thread_id):
            lines = text.split("\n")
            assert [line for line in lines if line.startswith("workspace:")] == [f"workspace: {place.workspace}"]
            assert sum(line.startswith("asked because:") for line in lines) == 1
            assert "/safe" not in "".join(line for line in lines if not line.startswith("  "))


async def test_output_that_drives_a_terminal_is_data_in_the_event_log(tmp_path: Path) -> None:
    """S31, S75: stored as JSON that has no raw control character in it; the doors escape it where they show it."""
    command = ("execute", {"command": r"printf '\033[2J\033]0;owned\007\342\200\256txt\n'"})
    async with scene(tmp_path, [calls(command), says("Done.")]) as place, opened(place) as service:
        run = await park(service, place)
        later = await service.decide(run.thread_id, [{"type": "approve"}])
        await later.wait_stopped(30)
        [done] = await events_of(later, "tool.complete")
        line = json.dumps(done)
        assert line.isascii()
        assert line.isprintable()
        assert "owned" in line


async def test_a_call_of_another_shape_says_nothing_of_confinement(tmp_path: Path) -> None:
    """Issue, confinement: a file tool works by handles inside the runtime; only what starts processes is confined."""
    reply = calls(("write_file", {"path": "a", "content": "x"}), ("execute", {"command": "true"}), ("python", {"code": "1"}))
    async with scene(tmp_path, [reply, says("Done.")]) as place, opened(place) as service:
        run = await park(service, place)
        shown = [text.count("\nconfinement: ") for text in await descriptions(service, run.thread_id)]
        assert shown == [0, 1, 1]
        assert await decided(service, run.thread_id, [{"type": "reject"}] * 3) == "completed"
