"""What happens to runs whose owner died: leftovers stopped, then continued from the checkpoint or settled as their cause says.

A run is orphaned when its owner is provably gone or has stopped counting (`checkpoints.leases`). Whoever finds it takes the
thread's next fence first, so the former owner, should it still live, can write no more; of two finders one wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langgraph.types import Command

from checkpoints.approvals import Approvals
from checkpoints.clock import Clock
from checkpoints.journal import Journal
from checkpoints.leases import LeaseJudge
from checkpoints.ledger import Ledger
from checkpoints.records import Cause
from checkpoints.records import Run as RunRecord
from checkpoints.run_errors import StaleFenceError
from checkpoints.status import CauseKind
from graphs.run import Run
from graphs.runtime import Runtime
from nodes.processes.recovery import stop_recorded
from nodes.processes.verdict import Identity
from nodes.sandbox import Sandboxes

LOST = "its runtime died"
LOOK_EVERY = 2.0
"""Seconds between two looks of a runtime that stays."""


class Recovery:
    """Finds orphaned runs of a store. Keep one as long as the process runs: the judge learns by looking."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        ledger: Ledger,
        approvals: Approvals,
        journal: Journal,
        judge: LeaseJudge,
        sandboxes: Sandboxes,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._ledger = ledger
        self._approvals = approvals
        self._journal = journal
        self._judge = judge
        self._sandboxes = sandboxes
        self._clock = clock

    async def sweep(self) -> list[Run]:
        """Looks once: settles the orphans that were told to stop, continues the others, and gives those that run again."""
        continued = []
        for record in await self._judge.orphans():
            if record.cause is not None:
                await self.settle(record)
                continue
            with suppress(StaleFenceError):  # somebody else was first
                continued.append(await self._continue(record))
        return continued

    async def watch(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await self.sweep()
            await asyncio.sleep(LOOK_EVERY)

    async def is_orphan(self, record: RunRecord) -> bool:
        """Whether a live run's owner is dead as far as this process can tell now."""
        return not record.status.final and await self._judge.is_dead(record.owner_id)

    async def settle(self, record: RunRecord) -> RunRecord:
        """Ends an orphaned run: as its first durable cause says, or as lost where it has none."""
        notes = await self._stop_leftovers(record)
        cause = Cause(kind=CauseKind.LOST, reason=LOST, at=self._clock.now())
        thread = await self._ledger.thread(record.thread_id)
        place = {
            "checkpoint_thread_id": record.thread_id,
            "checkpoint_id": thread.checkpoint_id if thread else "",
            "checkpoint_ns": "",
            "pending_interrupts": [],
            "reason": LOST,
        }
        payload: Mapping[str, Any] = {**place, **({"cleanup_errors": notes} if notes else {})}
        return await self._ledger.settle(record.run_id, cause, payload)

    async def _continue(self, record: RunRecord) -> Run:
        """Takes the run over and drives it on. Raises StaleFenceError when somebody else did."""
        adopted = await self._ledger.adopt(record.run_id, owner_id=self._runtime.owner_id, expected_fence=record.fence)
        await self._stop_leftovers(record)
        return self._runtime.continue_run(adopted, await self._input(adopted))

    async def _input(self, record: RunRecord) -> Any:
        """What the run was given. LangGraph applies it only where the checkpoint does not have it yet.

        An answer is delivered again by interrupt id alone: a bare one would answer whatever asks next.
        """
        decided = await self._approvals.decided_for(record.run_id)
        if not decided:
            return record.receipt.get("input")
        waiting = await self._runtime.waiting_interrupts(record.thread_id)
        answers = {item.interrupt_id: {"decisions": item.decisions} for item in decided if item.interrupt_id in waiting}
        return Command(resume=answers) if answers else None

    async def _stop_leftovers(self, record: RunRecord) -> list[str]:
        """Makes sure that nothing which the dead runtime had started on the thread still lives, in its session neither."""
        notes = []
        for effect in await self._journal.effects(record.thread_id, only_open=True):
            if isinstance(effect.scope, Mapping) and effect.scope:
                found = await stop_recorded(Identity.from_record(dict(effect.scope)))
                if not found.gone:
                    notes.append(f"call {effect.call_id}: containment lost, processes may be left")
        await self._sandboxes.settle(str(record.receipt.get("terms", {}).get("sandbox", "")))
        return notes
