"""A Python that remembers: one ipykernel in one scope, cell after cell, of which a single cell can be cancelled.

Cancelling a cell interrupts the kernel and kills whatever the cell started; the kernel's variables stay. A kernel that does
not yield in its budget is killed as a whole, and the result says that its state is lost. Needs the extra `kernel`.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from checkpoints.clock import fresh_id
from nodes.processes.cell import Broken, Cell, CellResult, CellStatus, take
from nodes.processes.errors import ProcessesError
from nodes.processes.output import BoundedText
from nodes.processes.processes import Processes
from nodes.processes.scope import Scope, outlast
from nodes.processes.spec import Confinement, OutputLimits, ScopeSpec
from nodes.processes.verdict import Reason, Verdict

try:
    from jupyter_client.asynchronous.client import AsyncKernelClient
    from jupyter_client.connect import write_connection_file

    INSTALLED = True
except ModuleNotFoundError:
    INSTALLED = False

START_BUDGET = 60.0
"""Seconds in which a kernel must answer for the first time."""

YIELD_BUDGET = 2.0
"""Seconds in which a cancelled cell must let go of the kernel before the kernel is killed."""

_ASK_AGAIN = 0.5
_OPTIONS = ("--HistoryManager.enabled=False", "--InteractiveShell.xmode=Plain", "--InteractiveShell.colors=NoColor")
"""No history file, and tracebacks as Python prints them: short, and made in a moment when a cell is interrupted."""


class KernelMissingError(ProcessesError):
    """The optional packages for the Python tool are not installed."""

    code = "kernel_missing"
    hint = "Install them with: pip install 'checkrein[kernel]'"

    def __init__(self) -> None:
        super().__init__("A persistent Python needs jupyter_client and ipykernel, which are not installed.")


class KernelFailedError(ProcessesError):
    """The kernel's process ended or stayed silent before it could take a cell."""

    code = "kernel_failed"
    hint = "Check that ipykernel is installed for the Python that runs the cells."

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The Python kernel did not start: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpec:
    """How a kernel is started.

    Attributes:
        cwd: Absolute folder that it starts in.
        env: Its whole environment.
        python: The interpreter, with ipykernel installed.
        containment: Which rung. Not a namespace of its own: its first process would take the interrupts meant for the kernel.
        confinement: What it may touch; the folder of its sockets is added to the writable ones.
        limits: Bounds of one cell's output.
    """

    cwd: str
    env: Mapping[str, str]
    python: str = sys.executable
    containment: Literal["auto", "scoped", "reap"] = "auto"
    confinement: Confinement | None = None
    limits: OutputLimits = field(default_factory=OutputLimits)


@dataclass(slots=True)
class _Live:
    """A running kernel: its scope, its client, and the private folder of its sockets."""

    scope: Scope
    client: Any
    folder: Path


class Kernel:
    """One persistent Python. Cells run one after the other; the process starts with the first."""

    def __init__(self, processes: Processes, spec: KernelSpec) -> None:
        self._processes = processes
        self._spec = spec
        self._live: _Live | None = None
        self._turn = asyncio.Lock()
        self.last_interruption: CellResult | None = None
        """What became of the cell that was cancelled last, since its caller got CancelledError in place of a result."""

    @property
    def scope(self) -> Scope | None:
        """The kernel's scope while it runs."""
        return self._live.scope if self._live else None

    async def execute(
        self, code: str, *, limit: float | None = None, on_text: Callable[[str], None] | None = None
    ) -> CellResult:
        """Runs one cell and returns when it is done.

        A cancellation ends the cell, waits until nothing that it started lives, and then goes through.

        Args:
            code: Python, as in a notebook cell.
            limit: Seconds after which the cell is ended; None for no limit.
            on_text: Is told every piece of text as it comes. Must not block.

        Raises:
            KernelMissingError: The extra is not installed.
            KernelFailedError: No kernel could be started.
        """
        async with self._turn:
            fresh = await self._ensure()
            assert self._live is not None
            text = BoundedText(self._spec.limits.head, self._spec.limits.tail)
            cell = Cell(text, self._processes.secrets.scrubber(), on_text, fresh)
            return await self._run(self._live, code, cell, limit)

    async def stop(self, reason: Reason = Reason.OWNER_ENDED) -> Verdict | None:
        """Kills the kernel and all that hangs on it; None when there is none. The next cell starts a new one."""
        live, self._live = self._live, None
        if live is None:
            return None
        try:
            return await live.scope.stop(reason)
        finally:
            await _discard(live)

    async def _run(self, live: _Live, code: str, cell: Cell, limit: float | None) -> CellResult:
        await live.scope.mark()
        listening = asyncio.create_task(_listen(live, code, cell), name="cell of a kernel")
        try:
            async with asyncio.timeout(limit):
                alive = await asyncio.shield(listening)
        except (TimeoutError, asyncio.CancelledError) as cause:
            status = CellStatus.TIMEOUT if isinstance(cause, TimeoutError) else CellStatus.CANCELLED
            ended = await outlast(asyncio.create_task(self._end_cell(live, listening, cell, status), name="end of a cell"))
            if status is CellStatus.CANCELLED:
                raise
            return ended
        if alive:
            return cell.result(CellStatus.ERROR if cell.error else CellStatus.OK)
        await self.stop(Reason.CANCEL)
        return cell.result(CellStatus.DIED, Broken(killed=0, empty=True, state_lost=True, milliseconds=0.0))

    async def _end_cell(self, live: _Live, listening: asyncio.Task[bool], cell: Cell, status: CellStatus) -> CellResult:
        self.last_interruption = cell.result(status, await self._break(live, listening))
        return self.last_interruption

    async def _break(self, live: _Live, listening: asyncio.Task[bool]) -> Broken:
        loop = asyncio.get_running_loop()
        began = loop.time()
        killed = 0
        while not listening.done() and loop.time() - began < YIELD_BUDGET:
            killed += (await live.scope.interrupt())["swept"]
            await asyncio.wait([listening], timeout=_ASK_AGAIN)
        if _ended_well(listening):
            last = await live.scope.interrupt(with_signal=False)  # what it started between the signal and its end
            if last["empty"]:
                return _broken(loop.time() - began, killed + last["swept"], empty=True, state_lost=False)
        listening.cancel()
        await asyncio.wait([listening])
        verdict = await self.stop(Reason.CANCEL)
        empty = verdict is None or verdict.empty
        return _broken(loop.time() - began, killed + (verdict.killed if verdict else 0), empty=empty, state_lost=True)

    async def _ensure(self) -> bool:
        """Starts the kernel when none runs. True when it did."""
        if self._live is not None and self._live.scope.verdict is None:
            return False
        await self.stop()
        if not INSTALLED:
            raise KernelMissingError
        folder, file, info = await asyncio.to_thread(_connection)
        try:
            self._live = await self._launch(folder, file, info)
            await _ready(self._live)
        except BaseException:
            await self.stop()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        return True

    async def _launch(self, folder: Path, file: str, info: Any) -> _Live:
        spec = self._spec
        confinement = spec.confinement and replace(spec.confinement, writable=(*spec.confinement.writable, str(folder)))
        scope = await self._processes.start(
            ScopeSpec(
                argv=(spec.python, "-m", "ipykernel_launcher", "-f", file, *_OPTIONS),
                cwd=spec.cwd,
                env={**spec.env, "IPYTHONDIR": str(folder / "ipython"), "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
                containment=spec.containment,
                confinement=confinement,
                title="python kernel",
            )
        )
        client = AsyncKernelClient()
        client.load_connection_info(info)
        client.start_channels(stdin=False, hb=False)
        return _Live(scope=scope, client=client, folder=folder)


def _connection() -> tuple[Path, str, Any]:
    # Unix sockets in a folder that only this user enters, and messages signed with a key that only this file holds. The
    # "ports" are suffixes of the sockets' names.
    folder = Path(tempfile.mkdtemp(prefix="checkrein-kernel-"))
    file, info = write_connection_file(
        str(folder / "connection.json"),
        ip=str(folder / "socket"),
        transport="ipc",
        key=fresh_id().encode(),
        shell_port=1,
        iopub_port=2,
        stdin_port=3,
        control_port=4,
        hb_port=5,
    )
    return folder, file, info


def _broken(seconds: float, killed: int, *, empty: bool, state_lost: bool) -> Broken:
    return Broken(killed=killed, empty=empty, state_lost=state_lost, milliseconds=round(seconds * 1000, 3))


def _ended_well(listening: asyncio.Task[bool]) -> bool:
    return listening.done() and not listening.cancelled() and listening.exception() is None and listening.result()


async def _ready(live: _Live) -> None:
    waiting = asyncio.ensure_future(live.client.wait_for_ready(timeout=START_BUDGET))
    dying = asyncio.ensure_future(live.scope.wait())
    try:
        await asyncio.wait([waiting, dying], return_when=asyncio.FIRST_COMPLETED)
        if dying.done():
            raise KernelFailedError(live.scope.output.text.strip()[-2000:] or "it said nothing")
        try:
            await waiting
        except RuntimeError as error:
            raise KernelFailedError(str(error)) from error
    finally:
        waiting.cancel()
        dying.cancel()
        await asyncio.wait([waiting, dying])


async def _listen(live: _Live, code: str, cell: Cell) -> bool:
    """Sends the cell and takes what it says until it is done. False: the kernel died under it."""
    asked = live.client.execute(code, store_history=False, allow_stdin=False)
    dying = asyncio.ensure_future(live.scope.wait())
    try:
        while True:
            hearing = asyncio.ensure_future(live.client.get_iopub_msg())
            try:
                await asyncio.wait([hearing, dying], return_when=asyncio.FIRST_COMPLETED)
                if not hearing.done():
                    return False
                message = hearing.result()
            finally:
                hearing.cancel()
            if message["parent_header"].get("msg_id") == asked and take(message, cell):
                return True
    finally:
        dying.cancel()


async def _discard(live: _Live) -> None:
    live.client.stop_channels()
    with suppress(OSError):
        live.client.context.destroy(linger=0)
    await asyncio.to_thread(shutil.rmtree, live.folder, ignore_errors=True)
