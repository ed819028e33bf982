"""Output in bounded memory: what is kept, what is counted, where the rest goes (S41, S48, S70)."""

from __future__ import annotations

import asyncio
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.processes.output import BoundedText, LiveBuffer, shown, snapshot, whole_characters
from nodes.processes.processes import Processes
from nodes.processes.spec import OutputLimits
from nodes.processes.verdict import Reason
from tests.processes.living import command, shell

SMALL = OutputLimits(head=1000, tail=1000, live=4000)


def _fed(data: bytes, pieces: list[int], head: int, tail: int) -> BoundedText:
    text = BoundedText(head, tail)
    for size in pieces:
        text.feed(data[:size])
        data = data[size:]
    text.feed(data)
    return text


@given(
    st.text(st.sampled_from("aé€🙂\n\n")).map(str.encode),
    st.lists(st.integers(0, 9), max_size=20),
    st.integers(0, 12),
    st.integers(1, 12),
)
def test_nothing_is_cut_inside_a_character_and_every_byte_is_counted(
    data: bytes, pieces: list[int], head: int, tail: int
) -> None:
    """S41: whatever the pieces are that the pipe gives."""
    text = _fed(data, pieces, head, tail)
    output = snapshot(text, None, 0)
    assert "\ufffd" not in output.head + output.tail
    assert output.total_bytes == len(data)
    assert output.total_lines == data.count(b"\n")
    assert len(output.head.encode()) + len(output.tail.encode()) + output.omitted_bytes == len(data)
    assert data.startswith(output.head.encode())
    assert data.endswith(output.tail.encode())
    if len(data) <= head + tail:
        assert output.text == data.decode()


@given(st.text().map(str.encode), st.integers(0, 3))
def test_a_prefix_of_whole_characters_always_decodes(data: bytes, cut: int) -> None:
    piece = data[: len(data) - cut]
    assert piece[: whole_characters(piece)].decode()[:0] == ""


def test_a_broken_byte_shows_one_mark_and_a_nul_its_symbol() -> None:
    assert shown(b"a\xffb\x00c\xe2\x82") == "a\ufffdb\u2400c\ufffd"


def test_long_lines_are_cut_at_line_feeds_where_there_are_some() -> None:
    text = BoundedText(100, 100)
    for number in range(1000):
        text.feed(b"line %d\n" % number)
    output = snapshot(text, None, 0)
    assert output.head.endswith("\n")
    assert output.tail.startswith("line ")
    assert output.tail.endswith("line 999\n")
    assert f"{output.omitted_bytes} bytes in {output.omitted_lines} lines" in output.text


@pytest.mark.anyio
async def test_a_character_that_arrives_in_two_pieces_stays_whole(processes: Processes) -> None:
    """S41: the euro sign as two bytes, a pause, one byte."""
    scope, _ = await processes.run(command("/bin/bash", "-c", r"printf '\xe2\x82'; sleep 0.1; printf '\xac\n'"))
    assert scope.output.text == "€\n"


@pytest.mark.anyio
async def test_a_line_of_two_megabytes_and_a_binary_with_nuls_stay_small(processes: Processes) -> None:
    """S70."""
    scope, _ = await processes.run(shell("head -c 2000000 /dev/zero | tr '\\0' x", limits=SMALL))
    assert (scope.output.total_bytes, scope.output.total_lines) == (2_000_000, 0)
    assert len(scope.output.text) < 2200
    scope, _ = await processes.run(shell("head -c 500 /dev/zero", limits=SMALL))
    assert scope.output.text == "\u2400" * 500


@pytest.mark.anyio
async def test_a_hundred_thousand_lines_are_counted_and_kept_in_a_private_file(processes: Processes, tmp_path: Path) -> None:
    """S70: the full text has a handle."""
    spill = tmp_path / "full"
    scope, _ = await processes.run(shell("seq 100000", limits=SMALL, spill=spill))
    output = scope.output
    assert output.total_lines == 100_000
    assert output.head.startswith("1\n2\n")
    assert output.tail.endswith("100000\n")
    assert output.spill == spill
    assert spill.read_bytes() == b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert stat.S_IMODE(spill.stat().st_mode) == 0o600
    assert output.spilled_bytes == spill.stat().st_size


@pytest.mark.anyio
async def test_the_file_ends_at_its_cap_and_small_output_makes_none(processes: Processes, tmp_path: Path) -> None:
    limits = OutputLimits(head=10, tail=10, spill=1000)
    scope, _ = await processes.run(shell("seq 100000", limits=limits, spill=tmp_path / "capped"))
    assert (tmp_path / "capped").stat().st_size == 1000
    assert scope.output.total_lines == 100_000
    scope, _ = await processes.run(shell("echo few", limits=limits, spill=tmp_path / "none"))
    assert scope.output.spill is None
    assert not (tmp_path / "none").exists()


@pytest.mark.anyio
async def test_a_spill_file_that_cannot_be_made_ends_nothing_but_itself(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    scope, verdict = await processes.run(shell("seq 100000", limits=SMALL, spill=tmp_path / "taken"))
    assert verdict.exit_code == 0
    assert scope.output.spill is None
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.anyio
async def test_more_output_than_allowed_in_total_ends_the_scope(processes: Processes) -> None:
    _, verdict = await processes.run(shell("yes", limits=OutputLimits(total=1_000_000), timeout=30))
    assert (verdict.reason, verdict.empty) == (Reason.OUTPUT_LIMIT, True)
    assert verdict.output_bytes < 3_000_000


@pytest.mark.anyio
async def test_live_lines_come_while_the_command_runs(processes: Processes) -> None:
    scope = await processes.start(command("/bin/bash", "-c", "echo one; read; echo two", stdin=None, timeout=30))
    texts = [lines.text async for lines in scope.lines()]
    assert "".join(texts) == "one\ntwo\n"
    scope = await processes.start(shell("echo one; sleep 60"))
    async with asyncio.timeout(20):
        async for lines in scope.lines():
            assert lines.text == "one\n"
            break
    await scope.stop()


@pytest.mark.anyio
async def test_a_reader_that_is_too_slow_loses_lines_and_not_the_commands_time(processes: Processes) -> None:
    scope = await processes.start(shell("seq 300000", limits=SMALL))
    verdict = await scope.wait()
    assert verdict.exit_code == 0
    (only,) = [lines async for lines in scope.lines()]
    assert only.text.endswith("300000\n")
    assert only.text[0] != "\n"
    assert only.skipped + len(only.text) == scope.output.total_bytes
    first = int(only.text.split("\n", 1)[0])
    assert only.text.startswith(f"{first}\n{first + 1}\n")


@pytest.mark.anyio
async def test_live_lines_cut_an_endless_line_between_characters(anyio_backend: str) -> None:
    buffer = LiveBuffer(32)
    reader = buffer.read()
    taken = []
    line = ("🙂" * 9).encode()
    for start in range(0, len(line), 18):
        buffer.feed(line[start : start + 18])
        taken.append(await anext(reader))
    buffer.end()
    taken += [lines async for lines in reader]
    assert "".join(lines.text for lines in taken) == "🙂" * 9


@pytest.mark.anyio
async def test_what_is_skipped_of_an_endless_line_is_whole_characters(anyio_backend: str) -> None:
    buffer = LiveBuffer(10)
    buffer.feed(("🙂" * 9).encode())
    buffer.end()
    (only,) = [lines async for lines in buffer.read()]
    assert only.text == "🙂🙂"
    assert only.skipped == 28


@pytest.mark.anyio
async def test_a_flood_adds_little_to_the_runtimes_memory(tmp_path: Path) -> None:
    """400 MB through the pipe; measured in a runtime of its own, from after its first command to its peak."""
    program = Path(__file__).parent / "programs" / "flood.py"
    async with Processes() as opened:
        scope, verdict = await opened.run(command(sys.executable, str(program), str(400_000_000), timeout=100))
    assert verdict.exit_code == 0, scope.output.text
    written, grown = map(int, scope.output.text.split())
    assert written == 400_000_000
    assert grown <= 8 << 20
