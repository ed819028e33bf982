"""The Python tool: cells in a kernel that keeps its variables, one kernel per run or, with a sandbox session, per session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from nodes.processes.cell import CellResult, CellStatus
from nodes.processes.errors import ProcessesError
from nodes.processes.kernel import Kernel, KernelSpec
from nodes.processes.processes import Processes
from nodes.processes.verdict import Reason
from nodes.sandbox import Sandboxes
from nodes.tools.live import LiveOutput
from nodes.tools.tool import Arguments, CallSite, Effect, Tool, ToolResult


class RunPython(Arguments):
    """Arguments of python."""

    code: Annotated[str, Field(min_length=1, max_length=200_000, description="Python source of one cell.")]
    timeout: Annotated[float, Field(gt=0, le=86_400, description="Seconds after which the cell is ended.")] = 120.0


class Kernels:
    """The kernels of one runtime by owner. A kernel starts with its first cell and ends with its owner."""

    def __init__(self, processes: Processes, specify: Callable[[str], KernelSpec], sandboxes: Sandboxes) -> None:
        self._processes = processes
        self._specify = specify
        self._sandboxes = sandboxes
        self._kernels: dict[str, Kernel] = {}
        self._lost: set[str] = set()

    def tool(self) -> Tool:
        """The tool."""
        return Tool(
            name="python",
            description="Run a cell of Python. Variables, imports and functions stay for the next cell.",
            arguments=RunPython,
            effect=Effect.OUTSIDE,
            run=self._run,
            confined=True,
        )

    def running_for(self, owner: str) -> list[str]:
        """`["python"]` while the owner's kernel lives."""
        kernel = self._kernels.get(owner)
        return ["python"] if kernel is not None and kernel.scope is not None else []

    async def stop_owner(self, owner: str) -> bool:
        """Ends an owner's kernel; True when nothing of it, nor of any cell that it ever had, is left for certain."""
        kernel = self._kernels.pop(owner, None)
        verdict = await kernel.stop(Reason.OWNER_ENDED) if kernel is not None else None
        contained = owner not in self._lost and (verdict is None or verdict.empty)
        self._lost.discard(owner)
        return contained

    async def close(self) -> None:
        """Ends every kernel."""
        await asyncio.gather(*(self.stop_owner(owner) for owner in list(self._kernels)))

    async def _run(self, arguments: RunPython, site: CallSite) -> ToolResult:
        owner = site.session or site.owner
        kernel = self._kernels.setdefault(owner, Kernel(self._processes, self._specify(site.workspace)))
        live = LiveOutput(site.emit, site.call_id)
        try:
            await self._sandboxes.enter(site.session)
            result = await kernel.execute(arguments.code, limit=arguments.timeout, on_text=live.put)
        except ProcessesError as error:
            return ToolResult(content=f"{error} {error.hint}".strip(), is_error=True)
        except asyncio.CancelledError:
            self._look(site.owner, kernel.last_interruption)
            raise
        finally:
            live.close()
            await self._sandboxes.leave(site.session)
        self._look(site.owner, result)
        return _shown(result)

    def _look(self, owner: str, ended: CellResult | None) -> None:
        if ended is not None and not ended.empty:
            self._lost.add(owner)


def _shown(result: CellResult) -> ToolResult:
    text = result.output.text.rstrip("\n")
    trace = result.error.traceback if result.error else ""
    note = _note(result)
    content = "\n".join(part for part in (text, trace, f"[{note}]") if part)
    details = {
        "status": result.status.value,
        "fresh": result.fresh,
        "state_lost": result.state_lost,
        "killed": result.killed,
        "empty": result.empty,
        "milliseconds": result.milliseconds,
    }
    return ToolResult(content=content, is_error=result.status is not CellStatus.OK, details=details)


def _note(result: CellResult) -> str:
    words = {
        CellStatus.OK: "ok.",
        CellStatus.ERROR: "error.",
        CellStatus.TIMEOUT: "ended after its timeout.",
        CellStatus.DIED: "the kernel died in this cell.",
    }[result.status]
    if result.state_lost:
        words += " STATE LOST: the next cell starts with no variables."
    if result.killed:
        words += f" {result.killed} process(es) that it had started were killed."
    if not result.empty:
        words += " CONTAINMENT LOST: processes of it may still be running."
    return words
