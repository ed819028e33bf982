"""The parts below a scope: finding descendants, never hitting a stranger, leaking nothing."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nodes.processes import errors, spawner_link
from nodes.processes.forkserver import darwin, tree, wire
from nodes.processes.forkserver.containment import attempt_in_child
from nodes.processes.forkserver.system import AbsentError
from nodes.processes.processes import Processes
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Rung
from tests.processes import corpus
from tests.processes.corpus import PROGRAMS
from tests.processes.living import alive, command, shell
from tests.processes.trials import fresh_group


def test_without_lists_of_children_a_scan_finds_and_kills_the_same_tree() -> None:
    found = _reaped("scan")
    assert found["agree"]
    assert found["empty"]
    assert found["killed"] >= 5


def test_without_subreapers_everybody_who_was_seen_is_killed() -> None:
    found = _reaped("memory")
    assert found["orphans"] == 2
    assert found["empty"]
    assert found["killed"] == 2


def test_a_macos_process_record_is_read_by_its_layout() -> None:
    record = struct.pack("=IIIII", 0, 5, 0, 77, 42).ljust(120, b"\0") + struct.pack("=QQ", 3, 4)
    assert darwin.parse(record) == (True, 42, 3_000_004)


def _reaped(way: str) -> dict[str, Any]:
    asked = [sys.executable, str(PROGRAMS / "reaping.py"), way]
    found: dict[str, Any] = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    return found


def test_a_number_that_now_belongs_to_a_stranger_is_not_signalled() -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    listed_parent = 4_000_000  # whoever listed it as a child was somebody else
    reaper = tree.Reaper(lambda parent: [])
    me = os.getpid()
    try:
        reaper._me = listed_parent + 1
        assert reaper._kill(listed_parent, stranger.pid) is False
        assert alive(stranger.pid)
        reaper._me = me
        assert reaper._kill(me, stranger.pid) is True
        assert stranger.wait(10) == -9
        assert reaper._kill(me, stranger.pid) is False
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_name_with_brackets_and_spaces_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 ("
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as running:
        stat = tree.stat_of(running.pid)
        running.kill()
    assert stat is not None
    assert stat.parent == os.getpid()


def test_what_cannot_be_had_is_said_with_its_reason() -> None:
    def refuse() -> None:
        raise AbsentError("user namespace (/proc/self/uid_map)", 1)

    assert attempt_in_child(refuse) == "user namespace (/proc/self/uid_map): Operation not permitted"
    assert attempt_in_child(lambda: None) is None


def test_the_fork_server_knows_the_standard_library_and_itself_only() -> None:
    look = "import sys; sys.path.append(sys.argv[1]); import nodes.processes.forkserver.spawner; print(*sys.modules)"
    root = str(Path(__file__).resolve().parents[2])
    asked = [sys.executable, "-S", "-E", "-I", "-c", look, root]
    loaded = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    foreign = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if not name.startswith("nodes.processes.forkserver")} == {
        "__main__",
        "nodes",
        "nodes.processes",
    }
    assert not {"asyncio", "dataclasses", "pathlib", "subprocess", "tempfile", "shutil"} & set(loaded)


def test_a_rung_that_is_demanded_and_absent_starts_nothing_and_says_why() -> None:
    person = corpus.people()["forbidden"]
    if isinstance(person, str):
        pytest.skip(person)
    with person.popen(PROGRAMS / "strict.py", group=fresh_group()) as runtime:
        assert runtime.stdout
        missing, refusal = runtime.stdout.read().splitlines()
    assert "user and pid namespace" in missing
    assert refusal.startswith("The containment 'namespace' is not available: user and pid namespace")


@pytest.mark.anyio
async def test_a_scoped_command_cannot_kill_its_guard(processes: Processes) -> None:
    if (await processes.containment())["default"] != Rung.SCOPED:
        pytest.skip("this kernel has no Landlock signal scope")
    scope, verdict = await processes.run(shell("kill -9 $PPID || echo refused; sleep 60 & kill -9 $! && echo own"))
    assert "refused\n" in scope.output.text
    assert scope.output.text.endswith("own\n")
    assert verdict.empty


@pytest.mark.anyio
async def test_thirty_scopes_at_once_each_get_their_own_verdict(processes: Processes) -> None:
    results = await asyncio.gather(*(processes.run(shell(f"echo {n}; exit {n}")) for n in range(30)))
    assert [verdict.exit_code for _, verdict in results] == list(range(30))
    assert [scope.output.text for scope, _ in results] == [f"{n}\n" for n in range(30)]


def _held() -> tuple[int, int, int]:
    me = os.getpid()
    zombies = sum(1 for pid in tree.children_from_files(me) if (stat := tree.stat_of(pid)) and not stat.alive)
    return sum(1 for _ in Path("/proc/self/fd").iterdir()), len(_threads()), zombies


def _threads() -> list[threading.Thread]:
    """All but the pool for files, which has two threads at most and ends with its owner."""
    return [thread for thread in threading.enumerate() if not thread.name.startswith("checkrein-processes")]


@pytest.mark.anyio
async def test_three_hundred_commands_leak_no_descriptor_thread_or_zombie(processes: Processes, tmp_path: Path) -> None:
    async def play(number: int) -> None:
        spec = shell("seq 9000", spill=tmp_path / str(number)) if number % 3 else shell("sleep 60 & sleep 60")
        task = asyncio.create_task(processes.run(spec))
        if number % 3 == 0:
            while not processes.active:
                await asyncio.sleep(0)
            await asyncio.sleep(0.001 * (number % 5))
            task.cancel()
        await asyncio.wait([task])

    await play(1)
    before = _held()
    for number in range(300):
        await play(number)
    assert _held() == before
    assert threading.active_count() - len(_threads()) <= 2


@pytest.mark.anyio
async def test_closing_leaves_no_spawner_descriptor_or_thread() -> None:
    before = _held()
    for _ in range(3):
        async with Processes() as opened:
            await opened.run(shell("seq 100"))
    for thread in set(threading.enumerate()) - set(_threads()):
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()
    assert _held()[::2] == before[::2]


@pytest.mark.anyio
async def test_a_python_that_does_not_start_is_reported_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawner_link, "_BOOT", "raise SystemExit('no such luck')")
    async with Processes() as opened:
        with pytest.raises(errors.SpawnerFailedError, match="no such luck"):
            await opened.start(shell(":"))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    async with Processes() as opened:
        with pytest.raises(errors.SpawnerFailedError, match="No such file"):
            await opened.start(shell(":"))


@pytest.mark.anyio
async def test_open_files_of_the_runtime_are_not_inherited(processes: Processes) -> None:
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    try:
        spec: ScopeSpec = command("/bin/sh", "-c", "ls /proc/self/fd | wc -l")
        scope, _ = await processes.run(spec)
    finally:
        os.close(held)
    assert scope.output.text.strip() == "4"  # the three streams, and the folder that ls reads


def test_a_request_travels_in_a_file_that_nobody_can_open_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on systems without memory files."""
    for present in (True, False):
        if not present:
            monkeypatch.delattr(os, "memfd_create")
        descriptor = wire.pack_body({"argv": ["x" * 300_000], "odd": "\udce9"})
        assert os.fstat(descriptor).st_nlink == 0
        assert wire.unpack_body(descriptor) == {"argv": ["x" * 300_000], "odd": "\udce9"}
