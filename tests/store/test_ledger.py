"""The ledger: what an admission checks, which cause counts, how a run ends, and what becomes of approvals."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from checkpoints.approvals import Approvals, Rules
from checkpoints.clock import SystemClock
from checkpoints.ledger import Ledger
from checkpoints.records import ApprovalAnswer, Cause, NewApproval, NewEvent, Run
from checkpoints.run_errors import (
    ApprovalDecidedError,
    ApprovalExpiredError,
    ApprovalSupersededError,
    ApprovalUnknownError,
    ApprovalWithdrawnError,
    CheckpointMovedError,
    GrantReusedError,
    IncompatibleCheckpointError,
    StaleFenceError,
    ThreadBusyError,
    UnknownRunError,
)
from checkpoints.saver import ThreadSaver
from checkpoints.status import ApprovalStatus, CauseKind, RunStatus
from checkpoints.store import Store, open_store
from tests.store.scenes import conversation, fresh, grant, new_run, start

pytestmark = pytest.mark.anyio


def cause(kind: CauseKind, reason: str = "") -> Cause:
    return Cause(kind=kind, reason=reason, at=datetime.now(UTC))


async def park(ledger: Ledger, thread_id: str, *interrupt_ids: str, expires_at: datetime | None = None) -> Run:
    run = await start(ledger, thread_id)
    pending = [
        NewApproval(interrupt_id=each, checkpoint_id="c", value={"n": each}, digests=["d"], expires_at=expires_at)
        for each in interrupt_ids
    ]
    return await ledger.finish(run.run_id, run.fence, RunStatus.AWAITING_INPUT, {}, pending)


async def kinds(ledger: Ledger, run_id: str) -> list[str]:
    return [event.kind for event in (await ledger.events(run_id)).events]


async def test_each_refusal_of_an_admission_has_its_own_error_and_starts_nothing(store: Store) -> None:
    """EVO-15: reused, stale token, other checkpoint, busy."""
    ledger = Ledger(store)
    app = conversation(1).compile(checkpointer=ThreadSaver(store))
    await app.ainvoke({"messages": []}, {"configurable": {"thread_id": "t"}}, durability="sync")
    info = await ledger.thread("t")
    assert info is not None
    with pytest.raises(CheckpointMovedError):
        await ledger.admit(new_run("t"), grant(0, fresh()))
    with pytest.raises(CheckpointMovedError):
        await ledger.admit(new_run("t"), grant(0, ""))
    with pytest.raises(StaleFenceError):
        await ledger.admit(new_run("t"), grant(3, info.checkpoint_id))
    assert await ledger.runs(thread_id="t") == ()
    used = grant(0, info.checkpoint_id)
    run = await ledger.admit(new_run("t"), used)
    assert (run.status, run.fence, run.root_run_id) == (RunStatus.RUNNING, 1, run.run_id)
    with pytest.raises(ThreadBusyError, match=run.run_id):
        await ledger.admit(new_run("t"), grant(1, info.checkpoint_id))
    with pytest.raises(GrantReusedError):
        await ledger.admit(new_run("t"), used)
    assert [each.run_id for each in await ledger.runs(thread_id="t")] == [run.run_id]
    assert await kinds(ledger, run.run_id) == ["run_started"]


async def test_a_refused_admission_leaves_its_grant_unused(store: Store) -> None:
    """Nothing of it is kept, so the same grant works once the thread is free."""
    ledger = Ledger(store)
    first = await start(ledger, "t")
    later = grant(1)
    with pytest.raises(ThreadBusyError):
        await ledger.admit(new_run("t"), later)
    await ledger.finish(first.run_id, first.fence, RunStatus.COMPLETED, {})
    assert (await ledger.admit(new_run("t"), later)).fence == 2


@pytest.mark.parametrize("outcome", sorted(set(RunStatus) - {RunStatus.RUNNING}))
async def test_a_run_ends_once_with_one_terminal_event_whatever_comes_later(store: Store, outcome: RunStatus) -> None:
    """EVO-9, EVO-20: a second end changes nothing; a late cause is a note."""
    ledger = Ledger(store)
    run = await start(ledger, "t")
    ended = await ledger.finish(run.run_id, run.fence, outcome, {"x": 1})
    assert (ended.status, ended.payload) == (outcome, {"x": 1, "outcome": outcome.value})
    again = await ledger.finish(run.run_id, run.fence, RunStatus.FAILED, {"x": 2})
    assert again == ended
    first = await ledger.record_cause(run.run_id, cause(CauseKind.CANCEL, "late"))
    assert first == ended.cause
    assert await kinds(ledger, run.run_id) == ["run_started", "run_terminal"]
    assert [note.kind for note in await ledger.notes(run.run_id)] == ["late_cancel"]
    assert (await ledger.run(run.run_id)) == ended


async def test_the_first_cause_wins_over_a_later_success(store: Store) -> None:
    """Promise 2: what is durable decides, not what was reported last."""
    ledger = Ledger(store)
    run = await start(ledger, "t")
    first = await ledger.record_cause(run.run_id, cause(CauseKind.CANCEL, "by hand"))
    assert await ledger.record_cause(run.run_id, cause(CauseKind.TIMEOUT)) == first
    pending = [NewApproval(interrupt_id="i", checkpoint_id="c")]
    ended = await ledger.finish(run.run_id, run.fence, RunStatus.AWAITING_INPUT, {}, pending)
    assert ended.status is RunStatus.CANCELLED
    assert ended.payload == {"outcome": "cancelled"}
    assert ended.cause == first
    [approval] = await Approvals(store).of_thread("t")
    assert (approval.status, approval.reason) == (ApprovalStatus.WITHDRAWN, "by hand")


async def test_a_cause_recorded_by_another_store_reaches_the_owner(address: str) -> None:
    """Cancel from another terminal."""
    async with open_store(address) as mine, open_store(address) as theirs:
        ledger = Ledger(mine)
        run = await start(ledger, "t")
        waiting = asyncio.create_task(ledger.wait_cause(run.run_id))
        await asyncio.sleep(0)
        sent = await Ledger(theirs).record_cause(run.run_id, cause(CauseKind.CANCEL, "there"))
        assert await asyncio.wait_for(waiting, 30) == sent


async def test_events_are_followed_live_across_stores_until_the_end(address: str) -> None:
    async with open_store(address) as mine, open_store(address) as theirs:
        ledger, other = Ledger(mine), Ledger(theirs)
        run = await start(ledger, "t")
        first = asyncio.Event()

        async def follow() -> list[str]:
            seen = []
            async for event in other.follow(run.run_id):
                seen.append(event.kind)
                first.set()
            return seen

        following = asyncio.create_task(follow())
        await asyncio.wait_for(first.wait(), 30)
        await ledger.append(run.fencing, [NewEvent(kind="one"), NewEvent(kind="two")])
        await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
        assert await asyncio.wait_for(following, 30) == ["run_started", "one", "two", "run_terminal"]
        assert [event.kind async for event in ledger.follow(run.run_id, after=2)] == ["two", "run_terminal"]
        with pytest.raises(UnknownRunError):
            _ = [event async for event in ledger.follow("nobody")]


async def test_event_pages_say_whether_there_is_more(store: Store) -> None:
    ledger = Ledger(store)
    run = await start(ledger, "t")
    assert await ledger.append(run.fencing, [NewEvent(kind=str(number)) for number in range(9)]) == 10
    page = await ledger.events(run.run_id, after=1, limit=4)
    assert ([event.seq for event in page.events], page.has_more) == ([2, 3, 4, 5], True)
    rest = await ledger.events(run.run_id, after=5, limit=5)
    assert ([event.seq for event in rest.events], rest.has_more) == ([6, 7, 8, 9, 10], False)


async def test_a_stale_owner_appends_and_finishes_nothing(store: Store) -> None:
    """Promise 4."""
    ledger = Ledger(store)
    run = await start(ledger, "t")
    adopted = await ledger.adopt(run.run_id, owner_id="heir", expected_fence=run.fence)
    assert (adopted.fence, adopted.owner_id) == (2, "heir")
    with pytest.raises(StaleFenceError):
        await ledger.append(run.fencing, [NewEvent(kind="late")])
    with pytest.raises(StaleFenceError):
        await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    with pytest.raises(StaleFenceError):
        await ledger.adopt(run.run_id, owner_id="second heir", expected_fence=run.fence)
    await ledger.finish(run.run_id, adopted.fence, RunStatus.COMPLETED, {})
    assert await kinds(ledger, run.run_id) == ["run_started", "run_recovered", "run_terminal"]


async def test_a_dead_owners_run_is_settled_as_its_first_cause_says_and_the_thread_is_free(store: Store) -> None:
    """S49: cancel settles run and thread in one transaction; a new run starts."""
    ledger = Ledger(store)
    run = await start(ledger, "t")
    await ledger.record_cause(run.run_id, cause(CauseKind.CANCEL, "gone"))
    settled = await ledger.settle(run.run_id, cause(CauseKind.LOST), {"k": "v"})
    assert (settled.status, settled.cause and settled.cause.kind) == (RunStatus.CANCELLED, CauseKind.CANCEL)
    assert await ledger.settle(run.run_id, cause(CauseKind.LOST), {}) == settled
    with pytest.raises(StaleFenceError):
        await ledger.append(run.fencing, [NewEvent(kind="late")])
    lost = await start(ledger, "t")
    assert (await ledger.settle(lost.run_id, cause(CauseKind.LOST), {})).status is RunStatus.FAILED
    assert await kinds(ledger, lost.run_id) == ["run_started", "run_terminal"]


async def test_an_answer_is_given_once_and_the_second_learns_why_not(store: Store) -> None:
    ledger, approvals = Ledger(store), Approvals(store)
    await park(ledger, "t", "i", "j")
    assert [each.interrupt_id for each in await approvals.inbox()] == ["i", "j"]
    answer = ApprovalAnswer(interrupt_id="i", decisions=[{"type": "approve"}], decided_by="ann")
    run = await ledger.admit(new_run("t"), grant(1), [answer])
    [decided] = await approvals.decided_for(run.run_id)
    assert (decided.status, decided.decisions, decided.decided_by) == (
        ApprovalStatus.DECIDED,
        [{"type": "approve"}],
        "ann",
    )
    assert [each.interrupt_id for each in await approvals.of_thread("t", pending=True)] == ["j"]
    await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    with pytest.raises(ApprovalDecidedError):
        await ledger.admit(new_run("t"), grant(2), [answer])
    with pytest.raises(ApprovalUnknownError):
        await ledger.admit(new_run("t"), grant(2), [ApprovalAnswer(interrupt_id="zzz", decisions=[])])
    with pytest.raises(ApprovalUnknownError):
        await approvals.get("t", "zzz")


async def test_an_answer_to_a_cancelled_run_is_refused_as_withdrawn_and_the_parent_stays_parked(store: Store) -> None:
    """S18, S19, EVO-20: recorded as withdrawn, never as a denial."""
    ledger = Ledger(store)
    run = await park(ledger, "t", "i")
    [ended] = await ledger.withdraw("t", reason="cancel")
    assert (ended.status, ended.reason) == (ApprovalStatus.WITHDRAWN, "cancel")
    assert await ledger.withdraw("t", reason="again") == ()
    with pytest.raises(ApprovalWithdrawnError):
        await ledger.admit(new_run("t"), grant(1), [ApprovalAnswer(interrupt_id="i", decisions=[])])
    assert (await ledger.run(run.run_id)).status is RunStatus.AWAITING_INPUT
    assert await kinds(ledger, run.run_id) == ["run_started", "run_terminal"]
    assert [note.kind for note in await ledger.notes(run.run_id)] == ["approval_withdrawn"]


async def test_new_input_supersedes_what_waits(store: Store) -> None:
    ledger = Ledger(store)
    await park(ledger, "t", "i")
    run = await start(ledger, "t")
    await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    with pytest.raises(ApprovalSupersededError):
        await ledger.admit(new_run("t"), grant(2), [ApprovalAnswer(interrupt_id="i", decisions=[])])


async def test_an_approval_expires_on_the_next_touch_once_and_the_late_answer_is_refused(store: Store) -> None:
    """S22: no daemon; one ending; S20: not an error of the run."""
    ledger, approvals = Ledger(store), Approvals(store)
    run = await park(ledger, "t", "i", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(ApprovalExpiredError):
        await ledger.admit(new_run("t"), grant(1), [ApprovalAnswer(interrupt_id="i", decisions=[])])
    assert await approvals.inbox() == ()
    assert (await approvals.get("t", "i")).status is ApprovalStatus.EXPIRED
    assert [note.kind for note in await ledger.notes(run.run_id)] == ["approval_expired"]
    assert (await ledger.run(run.run_id)).status is RunStatus.AWAITING_INPUT


def test_an_expiry_without_an_offset_is_refused() -> None:
    """S21."""
    with pytest.raises(ValueError, match="naive"):
        NewApproval(interrupt_id="i", checkpoint_id="c", expires_at=datetime(2027, 1, 1))  # noqa: DTZ001
    for text in ("2027-01-01T00:00+05:30", "2027-01-01T00:00Z"):
        NewApproval(interrupt_id="i", checkpoint_id="c", expires_at=datetime.fromisoformat(text))


@pytest.mark.parametrize(
    "payload",
    [
        {"id": "call-1", "path": "/w/a.txt", "error": None, "args": {"text": "x" * 1_000_000}},
        {"id": "call-1", "path": "/w/a.txt", "error": "boom", "result": "é\0\ud800" * 400_000},
        {"id": "call-1", "path": "/w/a.txt", "error": "boom", "lines": ["tiny"] * 100_000},
        {"id": "call-1", "path": "/w/a.txt", "error": "boom", "many": {f"k{n}": "v" * 500 for n in range(5000)}},
    ],
)
async def test_a_huge_payload_is_cut_to_valid_json_with_its_ids_whole(store: Store, payload: dict[str, Any]) -> None:
    """HER-14, S70."""
    ledger = Ledger(store)
    run = await start(ledger, "t")
    await ledger.append(run.fencing, [NewEvent(kind="tool.complete", payload=payload)])
    stored = (await ledger.events(run.run_id, after=1)).events[0].payload
    assert len(json.dumps(stored)) < 100_000
    assert stored["cut"] is True
    assert all(stored[key] == payload[key] for key in ("id", "path", "error"))


async def test_deep_odd_values_are_stored_as_json(store: Store) -> None:
    ledger = Ledger(store)
    run = await start(ledger, "t")
    deep: Any = "end"
    for _ in range(100):
        deep = {"in": deep}
    await ledger.append(run.fencing, [NewEvent(kind="x", payload={"deep": deep, "nan": float("nan"), "set": {1}, 5: object})])
    stored = (await ledger.events(run.run_id, after=1)).events[0].payload
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


async def test_texts_of_events_are_redacted_before_they_are_stored(address: str) -> None:
    async with open_store(address, redact=lambda text: text.replace("hunter2", "[secret]")) as store:
        ledger = Ledger(store)
        run = await start(ledger, "t")
        await ledger.append(run.fencing, [NewEvent(kind="x", payload={"a": ["see hunter2"], "b": {"c": "hunter2"}})])
        stored = (await ledger.events(run.run_id, after=1)).events[0].payload
        assert stored == {"a": ["see [secret]"], "b": {"c": "[secret]"}}


async def test_a_thread_of_another_graph_version_is_refused_with_both_versions(store: Store) -> None:
    """S64: data untouched; a version declared compatible goes on."""
    ledger = Ledger(store)
    run = await start(ledger, "t", graph_version="1", title="Tidy up")
    await ledger.finish(run.run_id, run.fence, RunStatus.COMPLETED, {})
    with pytest.raises(IncompatibleCheckpointError) as refused:
        await start(ledger, "t", graph_version="2")
    assert (refused.value.stored, refused.value.current) == ("1", "2")
    info = await ledger.thread("t")
    assert info is not None
    assert (info.graph_version, info.fence, info.title) == ("1", 1, "Tidy up")
    run = await start(Ledger(store, compatible=["1"]), "t", graph_version="2")
    assert run.fence == 2


async def test_threads_are_listed_last_touched_first_and_in_pages(store: Store) -> None:
    ledger = Ledger(store)
    for number in range(5):
        await start(ledger, f"t{number}")
    page = await ledger.threads(limit=3)
    assert [info.thread_id for info in page] == ["t4", "t3", "t2"]
    assert all(info.live_run_id for info in page)
    assert [info.thread_id for info in await ledger.threads(limit=3, before="t2")] == ["t1", "t0"]


async def test_standing_permissions_can_be_listed_and_revoked(store: Store) -> None:
    rules = Rules(store)
    everywhere = await rules.allow("execute", {"prefix": "ls"}, created_by="ann")
    here = await rules.allow("execute", {"prefix": "rm"}, thread_id="t")
    assert await rules.active() == (everywhere, here)
    assert await rules.active(thread_id="u") == (everywhere,)
    assert await rules.revoke(everywhere.rule_id)
    assert not await rules.revoke(everywhere.rule_id)
    assert await rules.active(thread_id="t") == (here,)
    assert isinstance(store.clock, SystemClock)
