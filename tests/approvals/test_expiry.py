"""An approval that nobody answered in time: it ends without a daemon, approves nothing, and the model is told what it means."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpoints.ledger import Ledger
from graphs.admission import NothingWaitsError
from graphs.client import open_checkrein
from graphs.service import Service
from tests.approvals.asking import SetClock, answers, appending, decided, park, waiting
from tests.runs.scene import GUARD, Scene, calls, opened, says, scene

pytestmark = pytest.mark.anyio

LIMIT = 60.0
APPROVE = [{"type": "approve"}]


@asynccontextmanager
async def clocked(place: Scene, clock: SetClock) -> AsyncIterator[Service]:
    """A runtime that goes by the test's clock."""
    async with open_checkrein(settings=place.settings, clock=clock) as service:
        yield service


async def test_an_expired_approval_is_no_consent_and_the_same_call_asks_again(tmp_path: Path) -> None:
    """S20: told as expired, not consented, do not retry; identical and rephrased retries ask; no run of it failed."""
    rephrased = ("execute", {"command": "printf 'ran\\n' >> executions"})
    replies = [calls(appending("ran")), calls(appending("ran")), calls(rephrased), says("As you like.")]
    clock = SetClock()
    async with scene(tmp_path, replies) as place, clocked(place, clock) as service:
        terms = place.context.model_copy(update={"approval_timeout": LIMIT})
        run = await park(service, place, terms)
        for _ in range(2):
            clock.pass_by(LIMIT)
            await park(service, place, terms, run.thread_id)
            assert len((await service.show(run.thread_id)).pending) == 1
        told = [str(answer.content) for answer in await answers(service, run.thread_id)]
        assert len(told) == 2
        for text in told:
            assert "expired" in text
            assert "Nobody consented" in text
            assert "Do not try it again" in text
        assert {record.status for record in (await service.show(run.thread_id)).runs} == {"awaiting_input"}
        assert await decided(service, run.thread_id, [{"type": "reject"}]) == "completed"
        assert place.executions == 0


async def test_it_expires_with_no_process_there_and_the_late_approval_is_refused(tmp_path: Path) -> None:
    """S22: marked on the next touch, once, whoever touches it; the thread stays usable."""
    clock = SetClock()
    async with scene(tmp_path, [calls(appending("ran")), says("Hello.")]) as place:
        async with clocked(place, clock) as service:
            run = await park(service, place, place.context.model_copy(update={"approval_timeout": LIMIT}))
            assert (await waiting(service, run.thread_id)).expires_at == datetime(2027, 1, 1, 0, 1, tzinfo=UTC)
            clock.pass_by(LIMIT - 1)
            assert len(await service.inbox()) == 1
        clock.pass_by(1)
        for _ in range(2):
            async with clocked(place, clock) as service:
                with pytest.raises(NothingWaitsError, match="its last approval was expired"):
                    await service.decide(run.thread_id, APPROVE)
                assert await service.inbox() == ()
                assert (await service.show(run.thread_id)).pending == ()
                notes = await Ledger(service.store).notes(run.run_id)
                assert [note.kind for note in notes] == ["approval_expired"]
        async with clocked(place, clock) as service:
            again = await service.submit("Hello?", thread_id=run.thread_id, context=place.context)
            assert await again.wait_stopped(GUARD) == "completed"
            assert place.executions == 0


async def test_going_on_with_an_expired_thread_asks_nobody_by_default(tmp_path: Path) -> None:
    """S22: not even a continuation without input makes the expired approval run or approvable."""
    clock = SetClock()
    async with scene(tmp_path, [calls(appending("ran"))]) as place, clocked(place, clock) as service:
        run = await park(service, place, place.context.model_copy(update={"approval_timeout": LIMIT}))
        clock.pass_by(LIMIT)
        assert await service.inbox() == ()
        again = await service.continue_thread(run.thread_id)
        assert await again.wait_stopped(GUARD) == "awaiting_input"
        with pytest.raises(NothingWaitsError, match="expired"):
            await service.decide(run.thread_id, APPROVE)
        assert place.executions == 0


async def test_the_limit_holds_for_every_approval_of_the_task(tmp_path: Path) -> None:
    """S22: what is asked after the first decision expires too, though the decision says nothing about it."""
    clock = SetClock()
    replies = [calls(appending("first")), calls(appending("second"))]
    async with scene(tmp_path, replies) as place, clocked(place, clock) as service:
        run = await park(service, place, place.context.model_copy(update={"approval_timeout": LIMIT}))
        assert await decided(service, run.thread_id, APPROVE) == "awaiting_input"
        assert (await waiting(service, run.thread_id)).expires_at == datetime(2027, 1, 1, 0, 1, tzinfo=UTC)
        clock.pass_by(LIMIT)
        with pytest.raises(NothingWaitsError, match="expired"):
            await service.decide(run.thread_id, APPROVE)
        assert place.executions == 1


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Kiritimati"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A time zone for the whole process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
async def test_the_verdict_is_the_same_in_every_time_zone(tmp_path: Path) -> None:
    """S21: the machine's own clock, read under another zone; aware in the store, an hour is an hour."""
    async with scene(tmp_path, [calls(appending("ran")), says("Done.")]) as place, opened(place) as service:
        before = datetime.now(UTC)
        run = await park(service, place, place.context.model_copy(update={"approval_timeout": 3600.0}))
        approval = await waiting(service, run.thread_id)
        assert approval.expires_at is not None
        assert approval.expires_at.utcoffset() is not None
        assert 3600 <= (approval.expires_at - before).total_seconds() <= 3600 + GUARD
        assert await decided(service, run.thread_id, APPROVE) == "completed"


async def test_a_clock_that_is_set_back_never_brings_an_approval_back(tmp_path: Path) -> None:
    """S21: an hour back before the end only waits longer; after the end, expired stays expired."""
    clock = SetClock()
    async with scene(tmp_path, [calls(appending("ran")), says("Done.")]) as place, clocked(place, clock) as service:
        run = await park(service, place, place.context.model_copy(update={"approval_timeout": LIMIT}))
        clock.pass_by(-3600)
        assert len(await service.inbox()) == 1
        clock.pass_by(3600 + LIMIT)
        assert await service.inbox() == ()
        clock.pass_by(-3600)
        assert await service.inbox() == ()
        with pytest.raises(NothingWaitsError, match="expired"):
            await service.decide(run.thread_id, APPROVE)
        assert place.executions == 0
