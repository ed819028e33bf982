"""Every released version of the store, and of an exported thread, is opened and goes on."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from langgraph.types import Command

from checkpoints.approvals import Approvals, Rules
from checkpoints.journal import Journal, Resolution
from checkpoints.ledger import Ledger
from checkpoints.migrations import known_version
from checkpoints.portable import import_thread
from checkpoints.records import FENCE_KEY, ApprovalAnswer
from checkpoints.saver import ThreadSaver
from checkpoints.sessions import SandboxSessions
from checkpoints.status import EffectStatus, RunStatus
from checkpoints.store import Store, open_store
from tests.store.released import FOLDER, THREAD
from tests.store.scenes import grant, new_run, pausing

pytestmark = pytest.mark.anyio

VERSIONS = range(1, known_version("sqlite") + 1)


async def go_on(store: Store) -> None:
    """What a person does with a parked thread: look, answer, settle the unknown effect."""
    ledger, journal = Ledger(store), Journal(store)
    info = await ledger.thread(THREAD)
    assert info is not None
    [parked] = await ledger.runs(thread_id=THREAD)
    assert parked.status is RunStatus.AWAITING_INPUT
    events = (await ledger.events(parked.run_id)).events
    assert [event.kind for event in events] == ["run_started", "note", "run_terminal"]
    assert events[1].payload == {"text": "grüß"}
    [unknown] = await journal.mark_unknown(THREAD)
    assert unknown.status is EffectStatus.UNKNOWN
    await journal.resolve(THREAD, unknown.call_id, Resolution.SKIP, by="ann", result={"content": "skipped"})
    [approval] = await Approvals(store).inbox()
    answer = ApprovalAnswer(interrupt_id=approval.interrupt_id, decisions=["yes"])
    run = await ledger.admit(new_run(THREAD), grant(info.fence, info.checkpoint_id), [answer])
    app = pausing().compile(checkpointer=ThreadSaver(store))
    config = {"configurable": {"thread_id": THREAD, FENCE_KEY: run.fencing}}
    out = await app.ainvoke(Command(resume={approval.interrupt_id: "yes"}), config, durability="sync")
    assert len(out["messages"]) == 102
    assert out["messages"][-1].content == "yes"
    await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_every_released_version_is_opened_and_goes_on(version: int, tmp_path: Path) -> None:
    """Issue: a stored fixture of every released version is kept and opened by a test."""
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress(FOLDER.joinpath(f"store-{version}.db.gz").read_bytes()))
    async with open_store(path) as store:
        assert len(await Rules(store).active()) == 1
        assert len(await SandboxSessions(store).list()) == 1
        await go_on(store)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_export_of_every_released_version_is_imported_and_goes_on(store: Store, version: int) -> None:
    await import_thread(store, FOLDER / f"thread-{version}.checkrein")
    await go_on(store)


def test_every_version_has_its_fixtures() -> None:
    kept = {path.name for path in FOLDER.iterdir()}
    assert kept == {f"store-{version}.db.gz" for version in VERSIONS} | {f"thread-{each}.checkrein" for each in VERSIONS}
