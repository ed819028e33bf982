"""Thinning, deleting, copying, exporting, and giving space back, without cutting what something still needs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Command

from checkpoints.approvals import Approvals
from checkpoints.artifacts import Artifacts, DamagedArtifactError, UnknownArtifactError
from checkpoints.journal import Done, EffectCall, Journal, Unknown
from checkpoints.ledger import Ledger
from checkpoints.portable import DamagedExportError, ThreadExistsError, UnknownThreadError, export_thread, import_thread
from checkpoints.records import FENCE_KEY, NewApproval, Run
from checkpoints.retention import Retention
from checkpoints.run_errors import ThreadBusyError
from checkpoints.saver import ThreadSaver
from checkpoints.sessions import SandboxSessions, SessionStatus, session_id_of
from checkpoints.status import EffectStatus, RunStatus
from checkpoints.store import Store, open_store
from tests.store.scenes import conversation, pausing, start

pytestmark = pytest.mark.anyio


def config_of(thread_id: str, **configurable: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, **configurable}, "recursion_limit": 5000}


async def talk(store: Store, thread_id: str, turns: int) -> list[Any]:
    app = conversation(turns).compile(checkpointer=ThreadSaver(store))
    out = await app.ainvoke({"messages": [HumanMessage("go")]}, config_of(thread_id), durability="sync")
    return list(out["messages"])


async def parked(store: Store, thread_id: str) -> Run:
    ledger = Ledger(store)
    run = await start(ledger, thread_id)
    app = pausing().compile(checkpointer=ThreadSaver(store))
    config = config_of(thread_id, **{FENCE_KEY: run.fencing})
    await app.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")
    state = await app.aget_state(config_of(thread_id))
    place = state.config["configurable"]
    pending = [
        NewApproval(interrupt_id=each.id, checkpoint_id=place["checkpoint_id"], value=each.value) for each in state.interrupts
    ]
    return await ledger.finish(run.run_id, run.fence, RunStatus.AWAITING_INPUT, {}, pending)


async def count(store: Store, table: str) -> int:
    [(number,)] = await store.read(lambda tx: tx.execute(f"SELECT COUNT(*) FROM {table}"))
    return int(number)


async def test_a_thinned_thread_that_is_parked_with_children_still_resumes(store: Store) -> None:
    """S62: prune keep-latest on a thread that is paused, has children and pending writes."""
    await parked(store, "t")
    saver = ThreadSaver(store)
    app = pausing().compile(checkpointer=saver)
    before = await app.aget_state(config_of("t"), subgraphs=True)
    rows = await count(store, "checkpoints")
    await saver.aprune(["t"])
    assert await count(store, "checkpoints") < rows
    after = await app.aget_state(config_of("t"), subgraphs=True)
    assert after.values == before.values
    assert after.interrupts == before.interrupts
    assert after.tasks[0].state == before.tasks[0].state
    [approval] = await Approvals(store).inbox()
    out = await app.ainvoke(Command(resume={approval.interrupt_id: "yes"}), config_of("t"), durability="sync")
    assert out["messages"][:-1] == before.values["messages"]
    assert out["messages"][-1].content == "yes"


async def test_thinning_again_after_more_turns_keeps_the_conversation(store: Store) -> None:
    """Doubling snapshots and pruning together: the chain of the newest checkpoint is whole each time."""
    saver = ThreadSaver(store)
    for turns in (3, 20, 1, 40, 7):
        said = await talk(store, "t", turns)
        await saver.aprune(["t"])
        state = await conversation(1).compile(checkpointer=saver).aget_state(config_of("t"))
        assert state.values["messages"] == said
    with pytest.raises(ValueError, match="keep_latest"):
        await saver.aprune(["t"], strategy="everything")


async def test_nothing_is_thinned_or_deleted_under_a_live_run(store: Store) -> None:
    await talk(store, "t", 3)
    await start(Ledger(store), "t")
    saver = ThreadSaver(store)
    for attempt in (saver.aprune(["t"]), saver.adelete_thread("t"), Retention(store, saver).delete_thread("t")):
        with pytest.raises(ThreadBusyError):
            await attempt


async def test_a_rolled_back_run_takes_its_answers_with_it(store: Store) -> None:
    """LangGraph's server deletes a run's checkpoints (langgraph-facts 7); what it answered is asked again."""
    saver = ThreadSaver(store)
    app = pausing().compile(checkpointer=saver)
    first = {**config_of("t"), "metadata": {"run_id": "run-1"}}
    await app.ainvoke({"messages": [HumanMessage("go")]}, first, durability="sync")
    before = await app.aget_state(config_of("t"))
    second = {**config_of("t"), "metadata": {"run_id": "run-2"}}
    await app.ainvoke(Command(resume={before.interrupts[0].id: "yes"}), second, durability="sync")
    await saver.adelete_for_runs(["run-2"])
    after = await app.aget_state(config_of("t"))
    assert after.values == before.values
    assert after.interrupts == before.interrupts


async def test_a_copy_has_the_conversation_and_knows_what_is_unknown(store: Store) -> None:
    said = await talk(store, "t", 20)
    journal = Journal(store)
    for call_id in ("done", "started"):
        call = EffectCall(thread_id="t", call_id=call_id, run_id="r", tool="execute", digest="d")
        await journal.enter(call, None, start=True)
    await journal.record("t", "done", None, {"content": "x"})
    saver = ThreadSaver(store)
    await saver.acopy_thread("t", "copy")
    await Retention(store, saver).delete_thread("t")
    state = await conversation(1).compile(checkpointer=saver).aget_state(config_of("copy"))
    assert state.values["messages"] == said
    call = EffectCall(thread_id="copy", call_id="done", run_id="r", tool="execute", digest="d")
    assert await journal.enter(call, None) == Done({"content": "x"})
    statuses = [effect.status for effect in await journal.effects("copy")]
    assert statuses == [EffectStatus.DONE, EffectStatus.UNKNOWN]
    assert isinstance(
        await journal.enter(EffectCall(thread_id="copy", call_id="started", run_id="r", tool="execute", digest="d"), None),
        Unknown,
    )


async def test_pruning_by_age_and_count_spares_what_somebody_needs(store: Store) -> None:
    """Issue: retention by age and count; never what a pending approval needs."""
    saver = ThreadSaver(store)
    retention = Retention(store, saver)
    await parked(store, "waits")
    ledger = Ledger(store)
    for number in range(4):
        await talk(store, f"t{number}", 2)
        run = await start(ledger, f"t{number}")
        await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    report = await retention.prune(keep_newest=2)
    assert (report.deleted, report.kept_busy) == (("t1", "t0"), ("waits",))
    report = await retention.prune(older_than=timedelta(0), thin=True)
    assert set(report.deleted) == {"t2", "t3"}
    assert report.thinned_checkpoints > 0
    assert [info.thread_id for info in await ledger.threads()] == ["waits"]
    usage = await retention.usage()
    assert [thread.thread_id for thread in usage.largest] == ["waits"]
    assert usage.bytes_by_kind["writes"] == usage.largest[0].bytes_by_kind["writes"] > 0
    for table in ("lane_runs", "notes"):
        assert await count(store, table) == 0
    await retention.compact()
    assert (await retention.usage()).database_bytes <= usage.database_bytes


async def test_deleted_space_is_given_back(tmp_path: Path) -> None:
    """langgraph-facts 6: deleting alone does not shrink the file."""
    path = tmp_path / "store.db"
    async with open_store(path) as store:
        retention = Retention(store, ThreadSaver(store))
        for number in range(5):
            await talk(store, f"t{number}", 100)
        await retention.compact()
        full = path.stat().st_size
        await retention.prune(keep_newest=1)
        await retention.compact()
        assert path.stat().st_size < full / 2


async def test_a_thread_moves_to_another_store_as_one_file(store: Store, tmp_path: Path) -> None:
    """Issue: export and import; the parked approval is answered over there."""
    run = await parked(store, "t")
    path = tmp_path / "thread.checkrein"
    await export_thread(store, "t", path)
    assert path.stat().st_mode & 0o777 == 0o600
    async with open_store(tmp_path / "other.db") as other:
        assert await import_thread(other, path) == "t"
        with pytest.raises(ThreadExistsError):
            await import_thread(other, path)
        assert await import_thread(other, path, thread_id="u") == "u"
        assert (await Ledger(other).run(run.run_id)) == run
        assert len((await Ledger(other).events(run.run_id)).events) == 2
        app = pausing().compile(checkpointer=ThreadSaver(other))
        approvals = await Approvals(other).inbox()
        assert [approval.thread_id for approval in approvals] == ["t", "u"]
        answer = Command(resume={approvals[1].interrupt_id: "yes"})
        out = await app.ainvoke(answer, config_of("u"), durability="sync")
        assert len(out["messages"]) == 102


async def test_a_damaged_export_is_refused_whole(store: Store, tmp_path: Path) -> None:
    await parked(store, "t")
    path = tmp_path / "thread.checkrein"
    await export_thread(store, "t", path)
    raw = path.read_bytes()
    broken = tmp_path / "broken"
    damages = [raw[:-1], raw + b"x", raw[:200] + bytes([raw[200] ^ 1]) + raw[201:], b"", b"x" + raw, raw[:30]]
    for damage in damages:
        broken.write_bytes(damage)
        with pytest.raises(DamagedExportError):
            await import_thread(store, broken, thread_id="new")
    assert await Ledger(store).thread("new") is None
    with pytest.raises(UnknownThreadError):
        await export_thread(store, "nobody", path)


async def test_artifacts_are_kept_once_by_content_and_swept_with_their_threads(store: Store, tmp_path: Path) -> None:
    artifacts = Artifacts(store, tmp_path / "artifacts")
    data = b"x" * 1_000_000
    digest = await artifacts.put(data, "t")
    assert await artifacts.put(data, "u") == digest
    path = artifacts.path(digest)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each for each in (tmp_path / "artifacts").rglob("*") if each.is_file()] == [path]
    assert await artifacts.read(digest, offset=999_990, limit=100) == b"x" * 10
    await artifacts.verify(digest)
    path.write_bytes(b"changed")
    with pytest.raises(DamagedArtifactError):
        await artifacts.verify(digest)
    retention = Retention(store, ThreadSaver(store))
    for thread_id in ("t", "u"):
        assert await artifacts.sweep() == 0
        await talk(store, thread_id, 1)
        await retention.delete_thread(thread_id)
    assert await artifacts.sweep() == 0  # Too young to be told from one that is about to be mentioned.
    os.utime(path, (0, 0))
    assert await artifacts.sweep() == 1
    for wrong in (digest, "../../etc/passwd"):
        with pytest.raises(UnknownArtifactError):
            await artifacts.read(wrong)


async def test_sandbox_sessions_are_found_by_key(store: Store) -> None:
    sessions = SandboxSessions(store)
    made = await sessions.touch("key", "/w", SessionStatus.RUNNING)
    assert made.session_id == session_id_of("key")
    assert made.session_id.startswith("runner-")
    again = await sessions.touch("key", "/elsewhere", SessionStatus.IDLE)
    assert (again.workspace, again.status, again.created_at) == ("/w", SessionStatus.IDLE, made.created_at)
    assert await sessions.list() == (again,)
    assert await sessions.get("key") == again
    assert await sessions.delete(made.session_id)
    assert not await sessions.delete(made.session_id)
