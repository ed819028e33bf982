"""Whoever dies, and whenever: the runtime, the spawner, the guard. What they kept alive goes with them (S47)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodes.processes import scope as scope_module
from nodes.processes.errors import StartUnknownError
from nodes.processes.forkserver import tree
from nodes.processes.processes import Processes
from nodes.processes.recovery import stop_recorded
from nodes.processes.scope import Scope
from nodes.processes.scrubbing import Secrets
from nodes.processes.verdict import Identity, Reason, Rung
from tests.processes import corpus
from tests.processes.corpus import PROGRAMS, beats, marked
from tests.processes.living import alive, carriers, shell
from tests.processes.trials import HOLDER, ROOT, fresh_group, races

TREE = "(setsid sleep 60 & setsid sleep 61 &) ; echo up; sleep 62"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mark processes by group")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="deaths-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


async def _gone_soon_by_tag(tag: str) -> list[int]:
    for _ in range(150):
        if not (left := carriers(tag)):
            break
        await asyncio.sleep(0.02)
    return left


def _parent(pid: int) -> int:
    stat = tree.stat_of(pid)
    assert stat is not None
    return stat.parent


async def _up(scope: Scope) -> None:
    async for lines in scope.lines():
        if "up" in lines.text:
            return


@needs_root
def test_a_runtime_killed_at_any_moment_around_a_spawn_leaves_nothing(folder: Path) -> None:
    survivors, begun = races(24, folder)
    assert survivors == []
    assert begun >= 12


@pytest.mark.soak
@pytest.mark.timeout(300)
@needs_root
def test_two_hundred_runtimes_killed_around_a_spawn_leave_nothing(folder: Path) -> None:
    survivors, begun = races(200, folder)
    assert survivors == []
    assert begun >= 100


@needs_root
def test_a_stopped_runtime_does_not_stop_the_deadline(folder: Path) -> None:
    group, file = fresh_group(), folder / "beats"
    line = f"exec {sys.executable} -S -E -I {PROGRAMS / 'misbehave.py'} beat {file}"
    with ROOT.popen(HOLDER, line, "1", group=group) as runtime:
        assert runtime.stdout
        runtime.stdout.readline()
        began = json.loads(runtime.stdout.readline())["began"]
        runtime.send_signal(signal.SIGSTOP)
        while not file.exists():
            time.sleep(0.01)
        time.sleep(2)
        last = max(instant for _, instant in beats(file))
        assert marked(group) != []  # the runtime itself, and its spawner
        runtime.send_signal(signal.SIGCONT)
        verdict = json.loads(runtime.stdout.readline())
    assert (verdict["reason"], verdict["empty"]) == ("timeout", True)
    assert (last - began) / 1e9 <= 1.6  # at most 0.15 s late on a quiet machine; the rest is for a loaded one


@needs_root
def test_a_copy_of_the_lifeline_in_another_process_keeps_nothing_alive(folder: Path) -> None:
    group = fresh_group()
    with ROOT.popen(HOLDER, TREE, "0", "fork", group=group) as runtime:
        assert runtime.stdout
        runtime.stdout.readline()
        identity: dict[str, Any] = json.loads(runtime.stdout.readline())
        runtime.kill()
        end = time.monotonic() + 3
        while carriers(identity["tag"]) and time.monotonic() < end:
            time.sleep(0.02)
        left = carriers(identity["tag"])
        for entry in marked(group):
            with suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(int(entry.split()[0]), signal.SIGKILL)
    assert left == []


@needs_root
def test_a_command_of_an_ordinary_user_cannot_read_the_runtimes_environment_nor_signal_it() -> None:
    """S69: a Landlock domain may neither signal nor look into what is outside of it. (Root may look anywhere.)"""
    person = corpus.people()["ordinary"]
    if isinstance(person, str):
        pytest.skip(person)
    line = "cat /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ; kill -9 $PPID; echo alive"
    with person.popen(HOLDER, line, "0", group=fresh_group()) as runtime:
        assert runtime.stdout
        *_, verdict = runtime.stdout.read().splitlines()
    found = json.loads(verdict)
    if found["rung"] != Rung.SCOPED:
        pytest.skip("this kernel has no Landlock signal scope")
    assert found["output"].count("ermi") == 2, found["output"]
    assert found["output"].endswith("alive\n")


@pytest.mark.anyio
async def test_a_killed_spawner_takes_no_scope_with_it_and_is_replaced(processes: Processes) -> None:
    scope = await processes.start(shell(TREE))
    await _up(scope)
    spawner = _parent(scope.identity.guard)
    os.kill(spawner, signal.SIGKILL)
    _, other = await processes.run(shell("exit 4"))
    assert other.exit_code == 4
    verdict = await scope.stop()
    assert (verdict.reason, verdict.empty) == (Reason.CANCEL, True)
    assert carriers(scope.identity.tag) == []


@pytest.mark.anyio
async def test_a_spawner_killed_under_a_start_costs_a_second_try_and_runs_the_command_once(
    processes: Processes, folder: Path
) -> None:
    scope = await processes.start(shell("sleep 60"))
    spawner = _parent(scope.identity.guard)
    os.kill(spawner, signal.SIGSTOP)
    starting = asyncio.create_task(processes.run(shell(f"echo once >> {folder}/ran")))
    while len(processes.active) < 2:
        await asyncio.sleep(0)
    os.kill(spawner, signal.SIGKILL)
    _, verdict = await starting
    assert (verdict.reason, verdict.exit_code) == (Reason.EXIT, 0)
    assert (folder / "ran").read_text() == "once\n"
    assert (await scope.stop()).empty


@pytest.mark.anyio
async def test_a_guard_that_vanishes_around_the_start_leaves_it_unknown_whether_the_command_began(
    processes: Processes,
) -> None:
    """Never silently run again: what may have begun is not tried a second time."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    read, write = os.pipe()
    os.close(write)
    with ThreadPoolExecutor(1) as threads:
        scope = Scope(shell(":"), "tag", ours, read, Secrets().scrubber(), threads, lambda ended: None)
        theirs.send(b'{"guard": 4194303, "birth": 1}\n')
        theirs.close()
        with pytest.raises(StartUnknownError):
            await scope.begun()
        verdict = await scope.wait()
    assert (verdict.reason, verdict.empty) == (Reason.LOST, False)


@pytest.mark.anyio
async def test_a_killed_guard_is_reported_as_lost_and_its_processes_are_killed_all_the_same(processes: Processes) -> None:
    scope = await processes.start(shell(TREE))
    await _up(scope)
    os.kill(scope.identity.guard, signal.SIGKILL)
    verdict = await scope.wait()
    assert (verdict.reason, verdict.empty, verdict.contained) == (Reason.LOST, False, False)
    assert await _gone_soon_by_tag(scope.identity.tag) == []


@pytest.mark.anyio
async def test_guard_and_spawner_killed_together_leave_nothing_that_can_be_found(processes: Processes) -> None:
    scope = await processes.start(shell(TREE))
    await _up(scope)
    spawner = _parent(scope.identity.guard)
    os.kill(spawner, signal.SIGKILL)
    os.kill(scope.identity.guard, signal.SIGKILL)
    verdict = await scope.wait()
    assert (verdict.reason, verdict.empty) == (Reason.LOST, False)
    assert await _gone_soon_by_tag(scope.identity.tag) == []
    assert (await processes.run(shell("exit 5")))[1].exit_code == 5


@pytest.mark.anyio
async def test_a_guard_that_hangs_is_given_up_in_bounded_time(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_module, "STOP_BUDGET", 0.2)
    scope = await processes.start(shell(TREE))
    await _up(scope)
    os.kill(scope.identity.guard, signal.SIGSTOP)
    async with asyncio.timeout(10):
        verdict = await scope.stop()
    assert (verdict.reason, verdict.empty) == (Reason.LOST, False)
    assert await _gone_soon_by_tag(scope.identity.tag) == []
    assert not alive(scope.identity.guard)


@pytest.mark.anyio
async def test_another_process_ends_a_recorded_scope_and_says_that_it_is_gone(processes: Processes) -> None:
    scope = await processes.start(shell(TREE))
    await _up(scope)
    found = await stop_recorded(Identity.from_record(json.loads(json.dumps(scope.identity.record()))))
    assert (found.gone, found.guard_was_alive) == (True, True)
    verdict = await scope.wait()
    assert (verdict.reason, verdict.empty) == (Reason.RECOVERED, True)
    again = await stop_recorded(scope.identity)
    assert (again.gone, again.killed, again.guard_was_alive) == (True, 0, False)


@pytest.mark.anyio
async def test_recovery_never_touches_a_process_that_only_has_the_same_number(processes: Processes) -> None:
    scope = await processes.start(shell("sleep 60"))
    real = scope.identity
    record = real.record() | {"tag": "another", "guard_birth": real.guard_birth - 1, "main_birth": real.main_birth - 1}
    reused = Identity.from_record(record)
    found = await stop_recorded(reused)
    assert (found.gone, found.killed, found.guard_was_alive) == (True, 0, False)
    rebooted = Identity.from_record(real.record() | {"tag": "another", "boot": "an earlier boot"})
    assert (await stop_recorded(rebooted)).killed == 0
    assert alive(real.guard)
    assert alive(real.main)
    await scope.stop()
