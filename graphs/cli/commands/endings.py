"""`checkrein cancel` and `delete`."""

from __future__ import annotations

from graphs.cli.desk import Desk
from graphs.cli.exits import Exit


async def cancel(desk: Desk) -> Exit:
    """Cancels, and comes back when it is over and nothing of the run is left."""
    async with desk.service() as service:
        run = await service.find_run(desk.args.thread)
        outcome = await service.cancel(run.run_id, desk.args.reason)
    desk.face.rows("cancel", [{"run_id": run.run_id, "thread_id": run.thread_id, "outcome": outcome}])
    return Exit.COMPLETED


async def delete(desk: Desk) -> Exit:
    """Deletes a thread."""
    async with desk.service() as service:
        thread_id = await service.delete(desk.args.thread)
    desk.face.rows("deleted", [{"thread_id": thread_id}])
    return Exit.COMPLETED
