"""A real server, over its standard streams and over HTTP: listed, called, cancelled, restarted, gone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodes.configuration import Configuration, ServerTable
from nodes.mcp.ground import Ground
from nodes.mcp.listings import MAX_AGE, Listed, Listings
from nodes.mcp.opening import open_mcp
from nodes.processes import confinement
from nodes.processes.forkserver import system
from nodes.processes.processes import Processes
from nodes.tools.tool import Effect
from tests.mcp.serving import HERE, Bench, gone, hostile, http, offered, server_pids, stdio, written
from tests.runs.scene import GUARD, alive

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["stdio", "http"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Bench]:
    async with reached(request.param, tmp_path) as opened:
        yield opened


def said_by(program: str) -> str:
    """What a Python program prints."""
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, cwd=HERE.parent.parent, capture_output=True, text=True, check=True, timeout=GUARD)
    return said.stdout.strip()


@asynccontextmanager
async def reached(way: str, folder: Path) -> AsyncIterator[Bench]:
    with ExitStack() as stack:
        table = stdio(folder) if way == "stdio" else await asyncio.to_thread(stack.enter_context, http(folder))
        async with offered(folder, {"real": {**table, "effects": {"echo": "none"}}}) as bench:
            yield bench


async def test_tools_are_listed_called_and_answer(bench: Bench) -> None:
    """Names, schemas and results; an effect is what the user says, not what the server says of itself."""
    echo = bench.tool("mcp__real__echo")
    assert "Says it back." in echo.description
    assert echo.arguments.model_json_schema()["required"] == ["text"]
    assert echo.effect is Effect.NONE
    assert bench.tool("mcp__real__wipe").effect is Effect.OUTSIDE  # its readOnlyHint says otherwise
    assert (await bench.call("mcp__real__echo", text="hello", times=2)).content == "hello hello"
    failed = await bench.call("mcp__real__fail")
    assert failed.is_error
    assert "the shelf is empty" in failed.content
    picture = await bench.call("mcp__real__picture")
    assert picture.content.split("\n") == ["here:", "[image, image/png, 8 bytes, not shown]"]
    assert bench.notes == []


async def test_a_long_answer_is_cut_and_kept_whole_in_a_file(bench: Bench) -> None:
    """S70: head, tail, and a handle to the full text."""
    result = await bench.call("mcp__real__flood", count=2_000_000)
    assert len(result.content) < 40_000
    assert result.content.startswith("begin")
    assert "xend\n[The full answer is in " in result.content
    kept = Path(result.details["spill"])
    assert kept.stat().st_size == result.details["bytes"] == 2_000_008
    assert kept.stat().st_mode & 0o077 == 0


async def test_a_cancelled_call_is_cancelled_at_the_server_which_goes_on(bench: Bench) -> None:
    """EVO-17: the cancel reaches the work, and the server stays for the next call."""
    call = asyncio.create_task(bench.call("mcp__real__wait"))
    assert await written(bench.folder / "waiting") == "begun"
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await written(bench.folder / "cancelled") == "yes"
    assert (await bench.call("mcp__real__echo", text="still here")).content == "still here"
    assert len(server_pids(bench.folder)) == 1


async def test_calls_run_side_by_side(bench: Bench) -> None:
    results = await asyncio.gather(*(bench.call("mcp__real__echo", text=f"n{number}") for number in range(20)))
    assert [result.content for result in results] == [f"n{number}" for number in range(20)]


async def test_a_call_that_ignores_its_cancel_ends_with_its_server(tmp_path: Path) -> None:
    """EVO-18: after the cancel nothing of the call lives, its children included; the next call has a new server."""
    async with offered(tmp_path, {"real": stdio(tmp_path)}) as bench:
        call = asyncio.create_task(bench.call("mcp__real__block"))
        child = int(await written(tmp_path / "blocking"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        [first] = server_pids(tmp_path)
        assert not alive(first)
        assert not alive(child)
        assert (await bench.call("mcp__real__echo", text="again")).content == "again"
        assert len(server_pids(tmp_path)) == 2


async def test_another_call_in_a_stopped_server_is_told_so(tmp_path: Path) -> None:
    async with offered(tmp_path, {"real": stdio(tmp_path)}) as bench:
        other = asyncio.create_task(bench.call("mcp__real__wait"))
        assert await written(tmp_path / "waiting")
        call = asyncio.create_task(bench.call("mcp__real__block"))
        await written(tmp_path / "blocking")
        call.cancel()
        result = await other
        assert result.is_error
        assert "was stopped while wait ran" in result.content
        assert "not known" in result.content
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_call_that_takes_too_long_is_withdrawn(tmp_path: Path) -> None:
    async with offered(tmp_path, {"real": stdio(tmp_path, timeout=0.5)}) as bench:
        result = await bench.call("mcp__real__wait")
        assert result.is_error
        assert "did not answer wait within 0.5 s and stopped it" in result.content
        assert await written(tmp_path / "cancelled") == "yes"
        blocked = await bench.call("mcp__real__block")
        assert "did not stop the call either, was stopped" in blocked.content
        assert not alive(int((tmp_path / "blocking").read_text()))


async def test_a_server_that_dies_gives_an_error_and_is_started_again(tmp_path: Path) -> None:
    async with offered(tmp_path, {"real": stdio(tmp_path)}) as bench:
        result = await bench.call("mcp__real__die")
        assert result.is_error
        assert "ended (it said: going down) while die ran" in result.content
        assert [kind for kind, _ in bench.events] == ["mcp.failed"]
        assert (await bench.call("mcp__real__echo", text="back")).content == "back"
        os.kill(server_pids(tmp_path)[-1], signal.SIGKILL)
        while bench.processes.active:  # until the runtime has noticed: a call in between is answered with an error
            await asyncio.sleep(0.01)
        assert "back" in (await bench.call("mcp__real__echo", text="back")).content
        assert len(server_pids(tmp_path)) == 3


async def test_a_server_that_goes_away_behind_its_address_gives_an_error(tmp_path: Path) -> None:
    with ExitStack() as stack:
        table = await asyncio.to_thread(stack.enter_context, http(tmp_path))
        async with offered(tmp_path, {"real": table}) as bench:
            os.kill(server_pids(tmp_path)[0], signal.SIGKILL)
            for _ in range(2):
                result = await bench.call("mcp__real__echo", text="anybody")
                assert result.is_error
                assert result.content.startswith("The MCP server real ")


async def test_the_server_is_gone_after_the_close_even_when_it_is_busy(tmp_path: Path) -> None:
    async with offered(tmp_path, {"real": stdio(tmp_path)}) as bench:
        call = asyncio.create_task(bench.call("mcp__real__block"))
        child = int(await written(tmp_path / "blocking"))
    assert not alive(child)
    assert not alive(server_pids(tmp_path)[0])
    assert "was stopped while block ran" in (await call).content
    assert "was closed with its runtime" in (await bench.call("mcp__real__echo", text="late")).content


async def test_the_server_is_gone_after_the_runtime_was_killed(tmp_path: Path) -> None:
    """S47: SIGKILL of the runtime leaves no server, and no child of one."""
    command = [sys.executable, str(HERE / "holder.py"), str(tmp_path)]
    holder = await asyncio.create_subprocess_exec(*command, cwd=HERE.parent.parent, stdout=subprocess.PIPE)
    try:
        child = int(await written(tmp_path / "blocking"))
        [server] = server_pids(tmp_path)
        assert alive(server)
        assert alive(child)
    finally:
        holder.kill()
        await holder.wait()
    await gone(server)
    await gone(child)


async def test_a_server_knows_of_the_environment_what_its_table_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S69: the environment is an allow-list; what the user names passes, secrets too."""
    monkeypatch.setenv("MY_API_TOKEN", "for-the-server")
    monkeypatch.setenv("OTHER_API_TOKEN", "not-for-it")
    async with offered(tmp_path, {"real": stdio(tmp_path, env_names=["MY_API_TOKEN", "NOT_THERE"])}) as bench:
        assert (await bench.call("mcp__real__variable", name="MY_API_TOKEN")).content == "for-the-server"
        assert (await bench.call("mcp__real__variable", name="OTHER_API_TOKEN")).content == "(not set)"
        assert bench.notes == ["The MCP server real is to get NOT_THERE, which is not set."]


@pytest.mark.skipif(system.landlock_abi() < 4, reason="this kernel's Landlock is missing or too old for TCP")
async def test_a_server_is_confined_like_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is out of reach by default; a table of the server's own overrules."""
    folder, state = tmp_path / "work", tmp_path / "state"
    for place in (folder, state, tmp_path / "tmp"):
        place.mkdir()
    monkeypatch.setattr(confinement, "TEMPORARY", (tmp_path / "tmp",))  # else everything here is in a writable folder
    async with offered(folder, {"real": stdio(folder)}) as bench:
        assert "refused" in (await bench.call("mcp__real__write", path=str(state / "forged"))).content
        assert (await bench.call("mcp__real__write", path=str(folder / "note"))).content == "written"
    async with offered(folder, {"real": stdio(folder, confinement={"enabled": False})}) as bench:
        assert (await bench.call("mcp__real__write", path=str(state / "meant"))).content == "written"


async def test_a_server_that_does_not_answer_at_its_address_gives_a_note_and_no_tools(tmp_path: Path) -> None:
    async with offered(tmp_path, {"away": {"url": "http://127.0.0.1:9/mcp"}}) as bench:
        assert bench.tools == ()
        [note] = bench.notes
        assert note.startswith("The MCP server away could not be used: it failed with")


async def test_a_cancelled_open_leaves_no_server(tmp_path: Path) -> None:
    async def opening() -> None:
        async with offered(tmp_path, {"real": stdio(tmp_path)}):
            pass

    task = asyncio.create_task(opening())
    pid = int(await written(tmp_path / "server.pid"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)


async def test_without_servers_nothing_is_loaded_and_nothing_starts(tmp_path: Path) -> None:
    """The extra may be missing, and the library takes most of a second to load."""
    program = (
        "import asyncio, sys\n"
        "from nodes.mcp.opening import open_mcp\n"
        "from nodes.configuration import Configuration\n"
        "async def main():\n"
        "    async with open_mcp(Configuration(), None, None) as tools:\n"
        "        print(list(tools), 'mcp' in sys.modules)\n"
        "asyncio.run(main())\n"
    )
    assert await asyncio.to_thread(said_by, program) == "[] False"


async def test_servers_without_the_library_are_refused_with_the_way_out(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "sys.modules['jsonschema'] = None\n"
        "from nodes.mcp.opening import open_mcp\n"
        "from nodes.configuration import Configuration\n"
        "from nodes.mcp.errors import McpExtraMissingError\n"
        "async def main():\n"
        "    configuration = Configuration.model_validate({'mcp': {'servers': {'a': {'url': 'http://127.0.0.1:9'}}}})\n"
        "    try:\n"
        "        async with open_mcp(configuration, None, None):\n"
        "            pass\n"
        "    except McpExtraMissingError as error:\n"
        "        print(error.code, error.hint)\n"
        "asyncio.run(main())\n"
    )
    assert "pip install 'checkrein[mcp]'" in await asyncio.to_thread(said_by, program)


async def test_a_known_server_starts_with_the_first_call(tmp_path: Path) -> None:
    """What it offers is kept, so that a runtime that calls none of its tools starts nothing."""
    async with offered(tmp_path, {"real": stdio(tmp_path)}, listings=tmp_path / "kept") as bench:
        first = [tool.name for tool in bench.tools]
    assert len(server_pids(tmp_path)) == 1
    async with offered(tmp_path, {"real": stdio(tmp_path, timeout=9)}, listings=tmp_path / "kept") as bench:
        assert [tool.name for tool in bench.tools] == first
        assert bench.processes.active == ()
        answers = await asyncio.gather(*(bench.call("mcp__real__echo", text=text) for text in ("one", "two")))
        assert [answer.content for answer in answers] == ["one", "two"]
    assert len(server_pids(tmp_path)) == 2
    async with offered(tmp_path, {"real": stdio(tmp_path, env_names=["PATH"])}, listings=tmp_path / "kept"):
        assert len(server_pids(tmp_path)) == 3  # another table, another server


async def test_a_tool_that_has_changed_since_it_was_listed_does_not_run(tmp_path: Path) -> None:
    """S09: what people and rules saw is what runs, or nothing does."""
    table = hostile("moody", env_names=["MOOD"])
    for mood, content in (("calm", "done"), ("wild", "describes work otherwise than before"), ("wild", "done")):
        async with offered(tmp_path, {"s": table}, listings=tmp_path / "kept", environment={"MOOD": mood}) as bench:
            assert content in (await bench.call("mcp__s__work")).content


def test_a_listing_is_known_for_a_day_and_for_its_own_table(tmp_path: Path) -> None:
    clock = SetClock()
    listings = Listings(tmp_path / "kept", clock)
    table = ServerTable(command=("x",))
    tools = (Listed(name="a", description="b", schema={"type": "object"}),)
    assert listings.known("s", table) is None
    listings.keep("s", table, tools)
    assert listings.known("s", table) == tools
    assert listings.known("s", ServerTable(command=("y",))) is None
    clock.instant += MAX_AGE + timedelta(seconds=1)
    assert listings.known("s", table) is None
    clock.instant -= MAX_AGE * 3
    assert listings.known("s", table) is None  # the clock was set back: who knows how old it is
    listings.forget("s")
    listings.forget("s")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"at": 0}', b'{"at": "x", "table": "", "tools": []}', b"\xff"])
def test_a_damaged_listing_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.json").write_bytes(content)
    assert Listings(tmp_path).known("s", ServerTable(command=("x",))) is None


def test_a_listing_that_cannot_be_kept_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listings = Listings(tmp_path / "file")
    listings.keep("s", ServerTable(command=("x",)), ())
    listings.forget("s")
    assert listings.known("s", ServerTable(command=("x",))) is None


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.instant = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.instant

    def monotonic(self) -> float:
        return 0.0


async def test_a_disabled_server_is_not_started(tmp_path: Path) -> None:
    configuration = Configuration.model_validate({"mcp": {"servers": {"off": stdio(tmp_path, enabled=False)}}})
    ground = Ground(folder=tmp_path, home=tmp_path, store=(), spill=tmp_path, environment={}, note=print)
    async with Processes() as processes, open_mcp(configuration, processes, ground) as tools:
        assert tools == ()
    assert not (tmp_path / "server.pid").exists()
