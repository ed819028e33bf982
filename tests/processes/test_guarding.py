"""The parts below a scope: finding descendants, never hitting a stranger, leaking nothing."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nodes.processes import errors, spawner_link
from nodes.processes.forkserver import tree
from nodes.processes.forkserver.containment import attempt_in_child
from nodes.processes.forkserver.system import AbsentError
from nodes.processes.processes import Processes
from nodes.processes.spec import ScopeSpec
from nodes.processes.verdict import Rung
from tests.processes.corpus import PROGRAMS
from tests.processes.living import alive, command, shell


def test_without_lists_of_children_a_scan_finds_and_kills_the_same_tree() -> None:
    asked = [sys.executable, str(PROGRAMS / "reaping.py")]
    found = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    assert found["agree"]
    assert found["empty"]
    assert found["killed"] >= 5


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
    assert not {"asyncio", "dataclasses", "pathlib", "subprocess", "typing_extensions"} & set(loaded)


@pytest.mark.anyio
async def test_a_rung_that_is_demanded_and_absent_starts_nothing(processes: Processes) -> None:
    nested = "exec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' sh"
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from nodes.processes.errors import ContainmentUnavailableError
from nodes.processes.processes import Processes
from tests.processes.living import shell
async def main():
    async with Processes() as opened:
        print("namespace" in (await opened.containment())["missing"])
        try:
            await opened.run(shell("echo ran >&2", containment="namespace"))
        except ContainmentUnavailableError as error:
            print(error)
asyncio.run(main())
"""
    without = f"{nested} setpriv --bounding-set -all --inh-caps -all {sys.executable} -c '{program.replace(chr(39), chr(34))}'"
    scope, verdict = await processes.run(shell(without))
    if verdict.exit_code != 0:
        pytest.skip(f"this machine cannot forbid user namespaces: {scope.output.text}")
    assert "The containment 'namespace' is not available" in scope.output.text
    assert scope.output.text.startswith("True")


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
    return sum(1 for _ in Path("/proc/self/fd").iterdir()), threading.active_count(), zombies


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

    await asyncio.gather(*(processes.run(shell("seq 9000", spill=tmp_path / f"warm{number}")) for number in range(12)))
    before = _held()
    for number in range(300):
        await play(number)
    assert _held() == before


@pytest.mark.anyio
async def test_closing_leaves_no_spawner_descriptor_or_thread() -> None:
    before = _held()
    for _ in range(3):
        async with Processes() as opened:
            await opened.run(shell("seq 100"))
    for thread in threading.enumerate():
        if thread.name.startswith("checkrein-processes"):
            thread.join(5)
    assert _held() == before


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
