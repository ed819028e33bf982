"""Servers that lie, flood, babble or die: the runtime stays as it is, and the model reads what happened. Row: S70."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodes.mcp import links
from nodes.mcp.servers import MAX_DESCRIPTION, MAX_TOOLS
from tests.mcp.serving import hostile, offered

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("dead", r"it ended (it said: no licence <U+001B>[31m found)"),
        ("mute", "did not start within 1 s"),
        ("wrong first", "failed with ValidationError"),
        ("broken list", "failed with ValidationError"),
    ],
)
async def test_a_server_that_cannot_be_used_gives_a_note_and_no_tools(tmp_path: Path, behaviour: str, words: str) -> None:
    """S74: crash, deadline and a wrong first frame are told apart, in one line that is safe to show."""
    async with offered(tmp_path, {"bad": hostile(behaviour, start_timeout=1)}) as bench:
        assert bench.tools == ()
        [note] = bench.notes
        assert words in note
        assert note.isprintable()
        assert note.startswith("The MCP server bad could not be used: it ")


async def test_a_missing_program_gives_a_note(tmp_path: Path) -> None:
    async with offered(tmp_path, {"bad": {"command": ["no-such-server"]}}) as bench:
        [note] = bench.notes
        assert "'no-such-server' was not found" in note


async def test_a_bad_server_does_not_take_the_good_one_with_it(tmp_path: Path) -> None:
    async with offered(tmp_path, {"bad": hostile("dead"), "good": hostile("plain")}) as bench:
        assert [tool.name for tool in bench.tools] == ["mcp__good__work"]
        assert (await bench.call("mcp__good__work")).content == "done"


async def test_tools_with_schemas_that_cannot_be_used_are_left_out(tmp_path: Path) -> None:
    async with offered(tmp_path, {"s": hostile("schemas")}) as bench:
        kept = {tool.name.removeprefix("mcp__s__") for tool in bench.tools}
        assert kept == {"deep", "circle", "bomb", "pattern", "plain"}
        assert sorted(note.split(" ")[0] for note in bench.notes) == [
            "mcp__s__large",
            "mcp__s__nonsense",
            "mcp__s__remote",
            "mcp__s__text",
        ]


async def test_names_that_are_listed_twice_are_used_once_and_likenesses_stay_apart(tmp_path: Path) -> None:
    async with offered(tmp_path, {"s": hostile("twins")}) as bench:
        names = [tool.name for tool in bench.tools]
        assert len(set(names)) == len(names) == 4
        assert bench.tool("mcp__s__same").description.startswith("first")
        assert "lists mcp__s__same more than once" in bench.notes[0]


async def test_too_many_tools_are_cut(tmp_path: Path) -> None:
    async with offered(tmp_path, {"s": hostile("many")}) as bench:
        assert len(bench.tools) == MAX_TOOLS
        assert "has 300 tools" in bench.notes[0]


async def test_a_description_is_cut_and_shows_what_is_hidden_in_it(tmp_path: Path) -> None:
    async with offered(tmp_path, {"s": hostile("words")}) as bench:
        description = bench.tools[0].description
        assert len(description) < MAX_DESCRIPTION + 200
        assert description.startswith("Read<U+202E> this.<U+001B>[31m")


async def test_garbage_between_messages_is_passed_over_and_never_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A few lines that are no messages, notifications and unknown requests change nothing and reach no terminal."""
    async with offered(tmp_path, {"s": hostile("chatter")}) as bench:
        assert [(await bench.call("mcp__s__work")).content for _ in range(3)] == ["done"] * 3
    said = capfd.readouterr()
    assert "for your eyes" not in said.out + said.err
    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("huge", f"sent a message of more than {links.MAX_MESSAGE} bytes while work ran"),
        ("gush", f"printed more than {links.MAX_GARBAGE} lines that are no messages while work ran"),
        ("wrong result", "answered work with something that is no result"),
        ("error", "refused work: no <U+001B>[31m way"),
        ("silent", "did not answer work within 0.5 s and, as it did not stop the call either, was stopped"),
    ],
)
async def test_a_call_that_gets_no_sound_answer_is_an_error_for_the_model(tmp_path: Path, behaviour: str, words: str) -> None:
    async with offered(tmp_path, {"s": hostile(behaviour, timeout=0.5 if behaviour == "silent" else 20)}) as bench:
        result = await bench.call("mcp__s__work")
        assert result.is_error
        assert words in result.content
        assert "\x1b" not in result.content


async def test_a_server_that_takes_no_input_is_stopped(tmp_path: Path) -> None:
    async with offered(tmp_path, {"s": hostile("deaf", timeout=0.5)}) as bench:
        result = await bench.call("mcp__s__work", text="x" * 4_000_000)
        assert "as it did not stop the call either, was stopped" in result.content


async def test_a_line_ends_at_its_line_feed_alone(tmp_path: Path) -> None:
    """S75: separators of other kinds inside a message do not tear it."""
    async with offered(tmp_path, {"s": hostile("separators")}) as bench:
        assert (await bench.call("mcp__s__work")).content == "one\u2028two\u2029three\x85four"


async def test_an_answer_under_a_strange_id_is_no_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with offered(tmp_path, {"s": hostile("wrong id")}) as bench:
        assert (await bench.call("mcp__s__work")).content == "done"
    assert "\x1b" not in capfd.readouterr().err


async def test_an_answer_over_http_that_has_no_end_is_cut_off(tmp_path: Path) -> None:
    """A body is read to its bound and no further."""
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
            while sent < 40 * links.MAX_MESSAGE:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with offered(tmp_path, {"s": {"url": f"http://127.0.0.1:{port}/mcp", "start_timeout": 10}}) as bench:
            assert bench.tools == ()
            assert len(bench.notes) == 1
    assert sent < 2 * links.MAX_MESSAGE
