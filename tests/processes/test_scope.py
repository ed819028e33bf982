"""A scope from start to verdict: the plain roads, and the ways a start can fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from pathlib import Path

import pytest

from checkpoints.errors import UsageError
from nodes.processes import errors
from nodes.processes.processes import Processes, Streams
from nodes.processes.verdict import Identity, Reason, Rung
from tests.processes.living import alive, carriers, command, shell

pytestmark = pytest.mark.anyio


async def test_a_command_that_ends_gives_its_exit_code_and_its_output(processes: Processes) -> None:
    scope, verdict = await processes.run(shell("echo out; echo err >&2; exit 3"))
    assert (verdict.reason, verdict.exit_code, verdict.empty) == (Reason.EXIT, 3, True)
    assert (verdict.killed, verdict.leftovers) == (0, 0)
    assert scope.output.text == "out\nerr\n"


async def test_a_command_that_dies_of_a_signal_says_which(processes: Processes) -> None:
    _, verdict = await processes.run(shell("kill -SEGV $$"))
    assert (verdict.reason, verdict.exit_code) == (Reason.EXIT, -signal.SIGSEGV)


@pytest.mark.parametrize("containment", ["auto", "reap", "namespace"])
async def test_a_grandchild_that_holds_the_pipe_is_a_leftover_and_delays_nothing(
    processes: Processes, containment: str
) -> None:
    """S48: the call returns at once with its output, and the leftover is killed and counted."""
    async with asyncio.timeout(10):
        scope, verdict = await processes.run(shell("sleep 60 & echo hi", containment=containment, timeout=30))
    assert scope.output.text == "hi\n"
    assert (verdict.reason, verdict.exit_code, verdict.leftovers, verdict.empty) == (Reason.EXIT, 0, 1, True)
    assert carriers(scope.identity.tag) == []


async def test_what_ends_by_itself_right_after_the_command_is_no_leftover(processes: Processes) -> None:
    scope, verdict = await processes.run(command("/bin/bash", "-c", "echo late > >(sleep 0.05; cat)", linger=5))
    assert scope.output.text == "late\n"
    assert (verdict.leftovers, verdict.killed) == (0, 0)


@pytest.mark.parametrize("containment", ["auto", "reap", "namespace"])
async def test_the_guard_ends_a_command_at_its_deadline(processes: Processes, containment: str) -> None:
    scope, verdict = await processes.run(shell("sleep 60 | sleep 61", timeout=0.2, containment=containment))
    assert (verdict.reason, verdict.empty, verdict.exit_code) == (Reason.TIMEOUT, True, -signal.SIGKILL)
    assert verdict.killed >= 3
    assert carriers(scope.identity.tag) == []


async def test_the_rung_in_force_is_said(processes: Processes) -> None:
    report = await processes.containment()
    assert Rung.REAP in report["rungs"]
    _, plain = await processes.run(shell(":", containment="reap"))
    _, default = await processes.run(shell(":"))
    assert plain.rung == Rung.REAP
    assert default.rung == report["default"]


async def test_a_command_in_a_namespace_sees_only_its_own_processes(processes: Processes) -> None:
    scope, verdict = await processes.run(shell("echo /proc/[0-9]*", containment="namespace"))
    assert verdict.rung == Rung.NAMESPACE
    assert scope.output.text == "/proc/1 /proc/2\n"


async def test_standard_input_is_what_the_spec_says_and_else_nothing(processes: Processes) -> None:
    scope, _ = await processes.run(command("cat", stdin=b"given " * 50_000))
    assert scope.output.total_bytes == 300_000
    scope, verdict = await processes.run(command("cat"))
    assert (scope.output.total_bytes, verdict.exit_code) == (0, 0)


async def test_the_environment_is_exactly_the_one_of_the_spec_and_the_tag(processes: Processes) -> None:
    """S69: nothing of the runtime's environment is inherited."""
    os.environ["CHECKREIN_CANARY"] = "canary"
    scope, _ = await processes.run(command("env", env={"PATH": "/usr/bin:/bin", "ONE": "1"}))
    names = sorted(line.partition("=")[0] for line in scope.output.text.splitlines())
    assert names == ["CHECKREIN_SCOPE", "ONE", "PATH"]


async def test_arguments_and_environment_of_several_hundred_kilobytes_arrive_whole(processes: Processes) -> None:
    words = [f"{number:05d}" + "x" * 95 for number in range(4000)]
    env = {"PATH": "/usr/bin:/bin", **{f"V{number}": "y" * 1000 for number in range(300)}}
    scope, verdict = await processes.run(command("sh", "-c", 'echo $# "$1" ${#V299}', "sh", *words, env=env))
    assert verdict.exit_code == 0
    assert scope.output.text == f"4000 {words[0]} 1000\n"


async def test_a_name_that_is_no_utf8_reaches_the_command_unchanged(processes: Processes, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).write_text("found")
    scope, _ = await processes.run(command("cat", name, cwd=tmp_path))
    assert scope.output.text == "found"


async def test_every_way_a_start_can_fail_has_its_own_error(processes: Processes, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("text")
    cases = [
        (command("no-such-command"), errors.CommandNotFoundError),
        (command(str(tmp_path / "missing")), errors.CommandNotFoundError),
        (command(str(script)), errors.InterpreterMissingError),
        (command(str(plain)), errors.NotExecutableError),
        (command(str(tmp_path)), errors.NotExecutableError),
        (command("true", cwd=tmp_path / "gone"), errors.WorkingFolderError),
        (command("true", cwd=plain), errors.WorkingFolderError),
        (command("true", "x" * 3_000_000), errors.ArgumentsTooLongError),
        (command("true", "nul\0inside"), errors.StartFailedError),
        (command(), UsageError),
        (command("true", cwd="relative"), UsageError),
    ]
    for spec, expected in cases:
        with pytest.raises(expected) as caught:
            await processes.run(spec)
        assert caught.value.code
    assert processes.active == ()


async def test_a_scope_can_be_written_down_and_found_again(processes: Processes) -> None:
    scope = await processes.start(shell("sleep 60"))
    identity = Identity.from_record(scope.identity.record())
    assert identity == scope.identity
    assert alive(identity.guard)
    assert alive(identity.main)
    assert processes.active == (scope,)
    await scope.stop()
    assert not alive(identity.main)


async def test_nothing_starts_after_close() -> None:
    opened = Processes()
    scope = await opened.start(shell("sleep 60"))
    await opened.close()
    assert scope.verdict is not None
    assert scope.verdict.reason == Reason.OWNER_ENDED
    with pytest.raises(errors.ClosedError):
        await opened.start(shell(":"))


async def test_a_program_that_is_talked_to_gets_the_callers_own_streams(processes: Processes) -> None:
    """A server of tools: its standard input and output are the caller's, its errors the scope's output."""
    (stdin, say), (hear, stdout) = os.pipe(), os.pipe()
    scope = await processes.start(shell("echo started >&2; read line; echo heard $line"), Streams(stdin=stdin, stdout=stdout))
    os.close(stdin)
    os.close(stdout)
    os.write(say, b"hello\n")
    verdict = await scope.wait()
    assert verdict.exit_code == 0
    assert os.read(hear, 100) == b"heard hello\n"
    assert scope.output.text == "started\n"
    os.close(say)
    os.close(hear)


async def test_a_machine_without_a_descriptor_or_process_to_give_says_so_and_recovers(processes: Processes) -> None:
    _, verdict = await processes.run(shell(":"))
    assert verdict.exit_code == 0
    (soft, hard) = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    filling = []
    try:
        with contextlib.suppress(OSError):
            while True:
                filling.append(os.dup(0))
        os.close(filling.pop())
        with pytest.raises(errors.StartFailedError, match="Too many open files"):
            await processes.run(shell(":"))
    finally:
        for descriptor in filling:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (await processes.run(shell("exit 6")))[1].exit_code == 6
    assert processes.active == ()
