"""The effect journal: at most once, and unknown is said aloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoints.journal import Done, EffectCall, Fresh, Journal, Resolution, Unknown
from checkpoints.ledger import Ledger
from checkpoints.run_errors import EffectConflictError, StaleFenceError, ThreadBusyError
from checkpoints.status import EffectStatus, RunStatus
from checkpoints.store import Store, open_store
from checkpoints.store_errors import StoreError, StoreFullError
from tests.store.scenes import start

pytestmark = pytest.mark.anyio


def call(call_id: str = "c", digest: str = "d") -> EffectCall:
    return EffectCall(thread_id="t", call_id=call_id, run_id="r", tool="execute", digest=digest, preview="ls")


async def test_a_call_runs_once_and_its_result_is_used_again(store: Store) -> None:
    """S15, S16, EVO-16."""
    run = await start(Ledger(store), "t")
    journal = Journal(store)
    assert await journal.enter(call(), run.fencing) == Fresh()
    assert await journal.enter(call(), run.fencing) == Fresh()
    await journal.start("t", "c", run.fencing, {"pid": 1})
    await journal.identify("t", "c", run.fencing, {"pid": 2, "birth": "x"})
    await journal.record("t", "c", run.fencing, {"content": "a.txt"})
    assert await Journal(store).enter(call(), run.fencing) == Done({"content": "a.txt"})
    [effect] = await journal.effects("t")
    assert (effect.status, effect.scope) == (EffectStatus.DONE, {"pid": 2, "birth": "x"})
    assert await journal.effects("t", only_open=True) == ()


async def test_a_call_that_was_started_and_has_no_result_is_unknown_for_ever(store: Store) -> None:
    """S17: not blindly rerun; promise 3."""
    run = await start(Ledger(store), "t")
    journal = Journal(store)
    assert await journal.enter(call(), run.fencing, start=True) == Fresh()
    for _ in range(2):
        entry = await Journal(store).enter(call(), run.fencing)
        assert isinstance(entry, Unknown)
        assert entry.effect.status is EffectStatus.UNKNOWN
    with pytest.raises(EffectConflictError):
        await journal.start("t", "c", run.fencing)


@pytest.mark.parametrize(
    ("how", "result", "then"),
    [
        (Resolution.RERUN, None, Fresh()),
        (Resolution.SKIP, {"content": "skipped"}, Done({"content": "skipped"})),
        (Resolution.RESULT, {"content": "seen"}, Done({"content": "seen"})),
    ],
)
async def test_a_person_settles_an_unknown_call(store: Store, how: Resolution, result: Any, then: Any) -> None:
    ledger, journal = Ledger(store), Journal(store)
    run = await start(ledger, "t")
    await journal.enter(call(), run.fencing, start=True)
    with pytest.raises(ThreadBusyError):
        await journal.mark_unknown("t")
    await ledger.finish(run.run_id, run.fence, RunStatus.FAILED, {})
    [effect] = await journal.mark_unknown("t")
    assert effect.call_id == "c"
    settled = await journal.resolve("t", "c", how, by="ann", result=result)
    assert settled.resolved_by == "ann"
    with pytest.raises(EffectConflictError):
        await journal.resolve("t", "c", how, by="bob", result=result)
    again = await start(ledger, "t")
    assert await journal.enter(call(), again.fencing) == then


async def test_another_call_under_the_same_id_is_refused(store: Store) -> None:
    """Promise 1: what runs is what was approved."""
    run = await start(Ledger(store), "t")
    journal = Journal(store)
    await journal.enter(call(), run.fencing)
    with pytest.raises(EffectConflictError, match="other arguments"):
        await journal.enter(call(digest="other"), run.fencing)
    with pytest.raises(EffectConflictError, match="not in the journal"):
        await journal.start("t", "nope", run.fencing)


async def test_a_stale_worker_starts_and_records_nothing(store: Store) -> None:
    """Promise 4."""
    ledger, journal = Ledger(store), Journal(store)
    run = await start(ledger, "t")
    await journal.enter(call(), run.fencing)
    heir = await ledger.adopt(run.run_id, owner_id="heir", expected_fence=run.fence)
    for attempt in (
        journal.enter(call("other"), run.fencing),
        journal.start("t", "c", run.fencing),
        journal.record("t", "c", run.fencing, {}),
        journal.enter(call(), None),
    ):
        with pytest.raises((StaleFenceError, ThreadBusyError)):
            await attempt
    assert await journal.enter(call(), heir.fencing) == Fresh()


async def test_a_result_whose_write_failed_is_written_first_next_time(tmp_path: Path) -> None:
    """S51: the tool is not run again."""
    async with open_store(tmp_path / "store.db") as store:
        run = await start(Ledger(store), "t")
        journal = Journal(store)
        await journal.enter(call(), run.fencing, start=True)
        real, failures = store.write, [StoreFullError("disk", "made to fail")]

        async def fail_once(*args: Any, **kwargs: Any) -> Any:
            if failures:
                raise failures.pop()
            return await real(*args, **kwargs)

        store.write = fail_once  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await journal.record("t", "c", run.fencing, {"content": "it ran"})
        assert await journal.enter(call(), run.fencing) == Done({"content": "it ran"})
        store.write = real  # type: ignore[method-assign]
    async with open_store(tmp_path / "store.db") as store:
        assert await Journal(store).enter(call(), run.fencing) == Done({"content": "it ran"})


async def test_without_a_run_the_journal_works_while_no_run_is_live(store: Store) -> None:
    """The graph alone keeps promise 3, also when something else drives it."""
    journal = Journal(store)
    assert await journal.enter(call(), None, start=True) == Fresh()
    await journal.record("t", "c", None, {"content": "x"})
    assert await journal.enter(call(), None) == Done({"content": "x"})
