"""What commands write, on its way to the model, the ledger and the disk: bounded everywhere, and never broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints.records import Event
from graphs.run import Run
from graphs.service import Service
from nodes.tools.live import ROOM, LiveOutput
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene
from tests.teardown.looking import bypassing, events_of
from tests.teardown.trials import PROGRAMS

pytestmark = pytest.mark.anyio

MOST = 36_000
"""Bytes of a result: head, tail and the lines between and after them."""


async def shown(service: Service, place: Scene) -> tuple[Run, str, list[Event]]:
    """Runs the one task of a scene and gives the run, what the model read, and the events."""
    run = await service.submit("Go.", context=bypassing(place))
    assert await run.wait_stopped(GUARD) == "completed"
    [answer] = [message for message in place.model.requests[-1].body["messages"] if message["role"] == "tool"]
    return run, answer["content"], await events_of(service, run)


def answers_in(place: Scene) -> list[str]:
    """What the model read of its calls' results."""
    return [message["content"] for message in place.model.requests[-1].body["messages"] if message["role"] == "tool"]


def details_of(events: list[Event]) -> dict[str, object]:
    [details] = [event.payload["details"] for event in events if event.kind == "tool.complete"]
    return dict(details)


def live_text(events: list[Event]) -> str:
    return "".join(event.payload["text"] for event in events if event.kind == "output")


def skipped(events: list[Event]) -> int:
    return sum(event.payload["skipped"] for event in events if event.kind == "output")


async def test_one_huge_line_is_bounded_and_its_full_text_can_be_found(tmp_path: Path) -> None:
    """S70: a line of 2 MB: head and tail for the model, a file with all of it."""
    command = f"{sys.executable} -S -E -c \"print('b' + 'a' * 1999998 + 'e')\""
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place, opened(place) as service:
        _, content, events = await shown(service, place)
        assert len(content.encode()) < MOST
        assert content.startswith("baaa")
        assert "aae\n[exit code 0." in content
        assert "bytes in 0 lines left out of 2000001 bytes" in content
        digest = str(details_of(events)["artifact"])
        assert digest in content
        [kept] = place.settings.home.glob(f"artifacts/*/{digest}")
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.read_text() == "b" + "a" * 1_999_998 + "e\n"
        assert list(place.settings.spill.iterdir()) == []
        assert len(live_text(events)) <= ROOM
        assert len(live_text(events).encode()) + skipped(events) == 2_000_001


async def test_the_model_can_page_through_what_a_result_left_out(tmp_path: Path) -> None:
    """S70: the handle works for the model, whose commands cannot reach the state folder; in its own thread only."""
    command = "for i in $(seq 4000); do printf '%04d \u20ac\\n' $i; done; printf end"
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place:
        async with opened(place) as service:
            run, content, _ = await shown(service, place)
    name = content.partition("name=")[2].split()[0]
    pages = calls(*[("read_output", {"name": name, "start": start}) for start in (0, 15_998, 15_999, 36_003)])
    async with scene(tmp_path, [pages, says("Done."), pages, says("Done.")]) as place, opened(place) as service:
        again = await service.submit("Go on.", thread_id=run.thread_id, context=bypassing(place))
        assert await again.wait_stopped(GUARD) == "completed"
        first, second, inside, last = answers_in(place)[1:]
        assert first.startswith("0001 \u20ac\n0002")
        assert first.endswith("1778 \n[bytes 0 to 15998 of 36003; read on with start=15998]")
        assert second.startswith("\u20ac\n1779")
        assert inside.startswith("\n1779")
        assert "\ufffd" not in first + second + inside
        assert last == "\n[bytes 36003 to 36003 of 36003]"
        other = await service.submit("Go.", context=bypassing(place))
        assert await other.wait_stopped(GUARD) == "completed"
        assert set(answers_in(place)) == {f"There is no output '{name}' in this thread."}


async def test_a_hundred_thousand_lines_stay_within_what_one_call_may_put_into_the_ledger(tmp_path: Path) -> None:
    """S70: the total is bounded, not only each event; what is missing is counted."""
    command = "for i in 1 2 3 4; do seq 100000 $((100000 + 24999)); sleep 0.05; done"
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place, opened(place) as service:
        _, content, events = await shown(service, place)
        assert len(content.encode()) < MOST
        output = [event for event in events if event.kind == "output"]
        assert sum(len(json.dumps(event.payload)) for event in output) < 2 * ROOM
        assert len(live_text(events)) + skipped(events) == 700_000
        assert skipped(events) > 0
        assert all(line == "" or len(line) == 6 for line in live_text(events).split("\n"))


def test_a_slow_writer_uses_its_room_up_by_events_too() -> None:
    """S70: an event costs room beside its text, so drop by drop is no way round the bound."""
    told: list[dict[str, object]] = []
    live = LiveOutput(lambda kind, /, **payload: told.append(payload), "c1", room=10_000)
    for _ in range(10_000):
        live.put("x\n")
    live.close()
    live.close()
    assert len(told) < 50
    assert sum(len(str(payload["text"])) + int(str(payload["skipped"])) for payload in told) == 20_000


async def test_bytes_that_are_no_text_are_shown_and_stored(tmp_path: Path) -> None:
    """S70: NUL and broken bytes reach model, events and store as one mark each; the command's result stands."""
    command = r"printf 'a\0b\377c\n'; printf '\0\0\0' "
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place, opened(place) as service:
        run, content, events = await shown(service, place)
        assert content == "a\u2400b\ufffdc\n\u2400\u2400\u2400\n[exit code 0.]"
        assert live_text(events) == "a\u2400b\ufffdc\n\u2400\u2400\u2400"
        [answer] = [message for message in (await service.show(run.thread_id)).messages if message.type == "tool"]
        assert answer.content == content


async def test_a_character_in_two_writes_stays_whole(tmp_path: Path) -> None:
    """S41: the euro sign as two bytes, a pause, and one byte; and a stream that ends inside a character."""
    command = r"printf 'x\342\202'; sleep 0.2; printf '\254\n'; printf 'y\342\202'"
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place, opened(place) as service:
        _, content, events = await shown(service, place)
        assert content == "x\u20ac\ny\ufffd\n[exit code 0.]"
        assert live_text(events) == "x\u20ac\ny\ufffd"


async def test_lines_come_while_the_command_runs(tmp_path: Path) -> None:
    """Live lines reach the event stream before the command has ended, which here waits for them to be seen."""
    command = "echo first; while [ ! -e seen ]; do sleep 0.01; done; echo last"
    async with scene(tmp_path, [calls(("execute", {"command": command})), says("Done.")]) as place, opened(place) as service:
        run = await service.submit("Go.", context=bypassing(place))
        async for event in run.stream():
            if event.kind == "output" and event.payload["text"] == "first\n":
                (place.workspace / "seen").touch()
        assert await run.wait_stopped(GUARD) == "completed"
        assert live_text(await events_of(service, run)) == "first\nlast\n"


async def test_the_output_of_a_cell_is_bounded_like_that_of_a_command(tmp_path: Path) -> None:
    """S70: the Python tool's live text has the same bound."""
    code = "for i in range(40):\n    print('z' * 50_000)"
    async with scene(tmp_path, [calls(("python", {"code": code})), says("Done.")]) as place, opened(place) as service:
        _, content, events = await shown(service, place)
        assert len(content.encode()) < MOST
        assert len(live_text(events)) <= ROOM
        assert len(live_text(events)) + skipped(events) == 40 * 50_001


@pytest.mark.timeout(120)
def test_a_flood_leaves_the_runtimes_memory_flat(tmp_path: Path) -> None:
    """The promise: 400 MB through a real run add at most 8 MB to the runtime."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "flooded.py"), str(tmp_path), "400000000"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PRETEND_API_KEY": "not-to-be-found-in-a-flood"},
    )
    found = json.loads(done.stdout)
    assert (found["outcome"], found["written"]) == ("completed", 400_000_000)
    assert found["live"] <= ROOM
    assert found["grown"] <= 8_000_000, found
