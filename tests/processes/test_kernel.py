"""A persistent Python: it remembers, one cell of it can be cancelled, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodes.processes import kernel as kernel_module
from nodes.processes.cell import CellStatus
from nodes.processes.errors import ProcessesError
from nodes.processes.kernel import Kernel, KernelFailedError, KernelSpec
from nodes.processes.processes import Processes
from nodes.processes.spec import Confinement, OutputLimits
from nodes.processes.verdict import Reason
from tests.processes.living import PATH, alive, carriers

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kernel(processes: Processes, tmp_path: Path) -> AsyncIterator[Kernel]:
    made = Kernel(processes, KernelSpec(cwd=str(tmp_path), env={"PATH": PATH, "HOME": str(tmp_path)}))
    yield made
    await made.stop()


def _pids(folder: Path) -> list[int]:
    return [int(line) for file in folder.glob("pids*") for line in file.read_text().split()]


async def _written(file: Path, lines: int = 1) -> None:
    async with asyncio.timeout(30):
        while not file.exists() or len(file.read_text().split()) < lines:
            await asyncio.sleep(0.01)


SPAWNING = """
import os, subprocess, sys, time
for number in range(5):
    child = subprocess.Popen(["setsid", "sleep", "60"])
    open("pids", "a").write(f"{child.pid}\\n")
subprocess.run("sh -c '(setsid sleep 61 & echo $! >> pids2) ; sleep 62'", shell=True)
"""


async def test_cells_share_their_variables_and_show_text_values_and_errors(kernel: Kernel) -> None:
    first = await kernel.execute("x = 40\nprint('printed')\nx + 2")
    assert (first.status, first.output.text, first.fresh) == (CellStatus.OK, "printed\n42\n", True)
    second = await kernel.execute("import os; os.system('echo from a child'); x / 0")
    assert (second.status, second.fresh, second.state_lost) == (CellStatus.ERROR, False, False)
    assert "from a child" in second.output.text
    assert second.error is not None
    assert second.error.name == "ZeroDivisionError"
    assert "\x1b" not in second.error.traceback
    third = await kernel.execute("input('?')")
    assert third.error is not None
    assert third.error.name == "StdinNotImplementedError"


async def test_a_cancelled_cell_leaves_nothing_and_the_variables_stay(kernel: Kernel, tmp_path: Path) -> None:
    await kernel.execute("kept = 'still here'")
    task = asyncio.create_task(kernel.execute(SPAWNING))
    await _written(tmp_path / "pids2")
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pids = _pids(tmp_path)
    assert len(pids) == 6
    assert not any(alive(pid) for pid in pids)
    broken = kernel.last_interruption
    assert broken is not None
    assert (broken.status, broken.state_lost, broken.empty) == (CellStatus.CANCELLED, False, True)
    assert broken.killed >= 7
    after = await kernel.execute("print(kept)")
    assert (after.output.text, after.fresh) == ("still here\n", False)


async def test_a_cells_timeout_does_the_same(kernel: Kernel, tmp_path: Path) -> None:
    await kernel.execute("kept = 1")
    result = await kernel.execute(SPAWNING, limit=1.5)
    assert (result.status, result.state_lost, result.empty) == (CellStatus.TIMEOUT, False, True)
    assert not any(alive(pid) for pid in _pids(tmp_path))
    assert (await kernel.execute("kept + 1")).output.text == "2\n"


async def test_what_an_earlier_cell_started_on_purpose_survives_a_later_cells_cancel(kernel: Kernel, tmp_path: Path) -> None:
    await kernel.execute("import subprocess; server = subprocess.Popen(['sleep', '60']); print(server.pid)")
    server = int((await kernel.execute("server.pid")).output.text)
    task = asyncio.create_task(kernel.execute(SPAWNING))
    await _written(tmp_path / "pids2")
    task.cancel()
    await asyncio.wait([task])
    assert alive(server)
    await kernel.stop()
    assert not alive(server)


async def test_a_kernel_that_does_not_yield_is_killed_and_says_that_its_state_is_lost(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_module, "YIELD_BUDGET", 0.3)
    monkeypatch.setattr(kernel_module, "_ASK_AGAIN", 0.1)
    await kernel.execute("kept = 1")
    stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(0.1)"
    result = await kernel.execute(stubborn, limit=0.5)
    assert (result.status, result.state_lost, result.empty) == (CellStatus.TIMEOUT, True, True)
    after = await kernel.execute("'kept' in globals()")
    assert (after.output.text, after.fresh) == ("False\n", True)


async def test_a_cell_that_kills_its_kernel_is_told_apart_from_an_error(kernel: Kernel) -> None:
    result = await kernel.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (result.status, result.state_lost) == (CellStatus.DIED, True)
    assert (await kernel.execute("1 + 1")).fresh


async def test_a_flood_from_a_cell_is_bounded(processes: Processes, tmp_path: Path) -> None:
    spec = KernelSpec(cwd=str(tmp_path), env={"PATH": PATH}, limits=OutputLimits(head=1000, tail=1000))
    made = Kernel(processes, spec)
    heard: list[str] = []
    result = await made.execute("for n in range(100_000): print(n)", on_text=heard.append)
    await made.stop()
    assert len(result.output.text) < 2200
    assert result.output.text.startswith("0\n1\n")
    assert result.output.text.endswith("99999\n")
    assert result.output.total_lines == 100_000
    assert "".join(heard).count("\n") == 100_000


async def test_the_kernel_is_one_scope_and_goes_with_its_runtime(kernel: Kernel) -> None:
    await kernel.execute("import subprocess; subprocess.Popen(['setsid', 'sleep', '60'])")
    scope = kernel.scope
    assert scope is not None
    verdict = await kernel.stop(Reason.OWNER_ENDED)
    assert verdict is not None
    assert (verdict.reason, verdict.empty, verdict.killed) == (Reason.OWNER_ENDED, True, 2)
    assert carriers(scope.identity.tag) == []
    assert kernel.scope is None
    assert await kernel.stop() is None


async def test_a_killed_kernel_is_replaced_with_the_next_cell(kernel: Kernel) -> None:
    await kernel.execute("x = 1")
    assert kernel.scope is not None
    os.kill(kernel.scope.identity.main, signal.SIGKILL)
    await kernel.scope.wait()
    assert (await kernel.execute("2")).fresh


async def test_a_kernel_works_confined(processes: Processes, tmp_path: Path) -> None:
    confinement = Confinement(writable=(str(tmp_path),))
    made = Kernel(processes, KernelSpec(cwd=str(tmp_path), env={"PATH": PATH}, confinement=confinement))
    result = await made.execute("open('inside', 'w').write('x')\nopen('/etc/outside', 'w')")
    await made.stop()
    assert result.error is not None
    assert result.error.name == "PermissionError"
    assert (tmp_path / "inside").read_text() == "x"


async def test_a_kernel_that_cannot_start_says_why_and_leaves_nothing(processes: Processes, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho no module named ipykernel_launcher >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(KernelFailedError, match="no module named"):
        await Kernel(processes, KernelSpec(cwd=str(tmp_path), env={"PATH": PATH}, python=str(bare))).execute("1")
    with pytest.raises(ProcessesError):
        await Kernel(processes, KernelSpec(cwd=str(tmp_path), env={"PATH": PATH}, python="/no/such/python")).execute("1")
    assert processes.active == ()
    assert Path(sys.executable).exists()
