"""There is no side door: each refusal has its own error, and starts nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from checkpoints.run_errors import CheckpointMovedError, GrantReusedError, StaleFenceError
from graphs.admission import (
    AdmissionError,
    AgentInput,
    GrantExpiredError,
    GrantTamperedError,
    InputMismatchError,
    Preparation,
)
from graphs.client import open_checkrein
from graphs.run import Run
from graphs.runtime import ReviewModeError
from graphs.service import Service
from nodes.context import AgentContext
from tests.runs.scene import GUARD, Scene, calls, says, scene

pytestmark = pytest.mark.anyio

APPROVE = Command(resume={"decisions": [{"type": "approve"}]})


class SetClock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.at = datetime(2027, 1, 1, tzinfo=UTC)
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds


@asynccontextmanager
async def parked(root: Path) -> AsyncIterator[tuple[Scene, Service, Run, SetClock]]:
    """A thread that waits for the approval of one command."""
    clock = SetClock()
    replies = [calls(("execute", {"command": "echo ran >> executions"})), says("Done.")]
    async with scene(root, replies) as place, open_checkrein(settings=place.settings, clock=clock) as service:
        run = await service.submit("Go.", context=place.context)
        assert await run.wait_stopped(GUARD) == "awaiting_input"
        yield place, service, run, clock


async def prepared(service: Service, run: Run, **changes: Any) -> tuple[str, AgentInput]:
    """A signed grant for approving the run's call, with some of its fields changed before signing."""
    thread = await service.thread_info(run.thread_id)
    value = AgentInput(value=APPROVE, checkpoint_thread_id=run.thread_id)
    fields: dict[str, Any] = {
        "turn_id": "turn",
        "thread_id": run.thread_id,
        "subject_id": "reviewer",
        "requested_model_ref": "",
        "gateway_input_digest": value.digest(),
        "checkpoint_thread_id": run.thread_id,
        "checkpoint_snapshot_id": thread.checkpoint_id,
        "turn_fencing_token": thread.fence,
    }
    return service.runtime.authority.sign_preparation(Preparation(**{**fields, **changes}), ttl_ms=60_000), value


async def assert_nothing_started(place: Scene, service: Service, run: Run) -> None:
    view = await service.show(run.thread_id)
    assert [record.run_id for record in view.runs] == [run.run_id]
    assert len(view.pending) == 1
    assert place.executions == 0


async def test_an_expired_grant_is_refused(tmp_path: Path) -> None:
    """EVO-15: the lifetime of 60,000 ms is over when the grant is shown."""
    async with parked(tmp_path) as (place, service, run, clock):
        grant, value = await prepared(service, run)
        clock.at += timedelta(milliseconds=60_000)
        with pytest.raises(GrantExpiredError, match="expired at 2027-01-01T00:01:00"):
            await service.runtime.prepare_run(grant, value)
        await assert_nothing_started(place, service, run)


async def test_a_grant_that_expires_between_quote_and_start_is_refused(tmp_path: Path) -> None:
    """EVO-15: the lifetime holds for the start, not only for the quote."""
    async with parked(tmp_path) as (place, service, run, clock):
        grant, value = await prepared(service, run)
        admission = service.runtime.authority.accept(await service.runtime.prepare_run(grant, value))
        clock.at += timedelta(minutes=2)
        with pytest.raises(GrantExpiredError):
            await service.runtime.start(admission)
        await assert_nothing_started(place, service, run)


async def test_a_grant_is_used_once(tmp_path: Path) -> None:
    """EVO-15: the same request id does not start a second run, not even at the same checkpoint."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run)
        quote = await service.runtime.prepare_run(grant, value)
        first = await service.runtime.start(service.runtime.authority.accept(quote))
        with pytest.raises(GrantReusedError):
            await service.runtime.start(service.runtime.authority.accept(quote))
        assert await first.wait_stopped(GUARD) == "completed"
        assert place.executions == 1


@pytest.mark.parametrize("place_of_change", [0, 40, -1])
async def test_a_tampered_grant_is_refused(tmp_path: Path, place_of_change: int) -> None:
    """EVO-15: one changed character anywhere."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run)
        letters = list(grant)
        letters[place_of_change] = "A" if letters[place_of_change] != "A" else "B"
        with pytest.raises(GrantTamperedError):
            await service.runtime.prepare_run("".join(letters), value)
        await assert_nothing_started(place, service, run)


async def test_a_quote_that_was_changed_after_it_was_accepted_is_refused(tmp_path: Path) -> None:
    """EVO-14, EVO-15: the terms are signed too."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run)
        quote = await service.runtime.prepare_run(grant, value)
        admission = service.runtime.authority.accept(quote)
        forged = replace(admission, quote=replace(quote, terms={**quote.terms, "review_mode": "auto"}))
        with pytest.raises(GrantTamperedError):
            await service.runtime.start(forged)
        await assert_nothing_started(place, service, run)


async def test_a_stale_fencing_token_is_refused(tmp_path: Path) -> None:
    """EVO-15: the grant is for an earlier life of the thread."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run, turn_fencing_token=0)
        with pytest.raises(StaleFenceError):
            await service.runtime.prepare_run(grant, value)
        await assert_nothing_started(place, service, run)


async def test_a_grant_for_another_checkpoint_is_refused(tmp_path: Path) -> None:
    """EVO-15: the grant names a checkpoint that is not the thread's newest."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run, checkpoint_snapshot_id="1f000000-0000-6000-8000-000000000000")
        with pytest.raises(CheckpointMovedError):
            await service.runtime.prepare_run(grant, value)
        await assert_nothing_started(place, service, run)


async def test_a_thread_that_moves_between_quote_and_start_is_refused(tmp_path: Path) -> None:
    """EVO-15: the ledger checks again in the transaction that starts the run."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run)
        admission = service.runtime.authority.accept(await service.runtime.prepare_run(grant, value))
        other = await service.decide(run.thread_id, [{"type": "reject"}])
        assert await other.wait_stopped(GUARD) == "completed"
        with pytest.raises(StaleFenceError):
            await service.runtime.start(admission)
        assert place.executions == 0


@pytest.mark.parametrize(
    "other",
    [
        AgentInput(value=Command(resume={"decisions": [{"type": "reject"}]}), checkpoint_thread_id="same"),
        AgentInput(value={"messages": ["do something else"]}, checkpoint_thread_id="same"),
        AgentInput(value=APPROVE, checkpoint_thread_id="00000000-0000-4000-8000-000000000000"),
    ],
)
async def test_another_input_than_the_granted_one_is_refused(tmp_path: Path, other: AgentInput) -> None:
    """EVO-15: other decisions, a message in place of an answer, another thread."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, _value = await prepared(service, run)
        shown = replace(other, checkpoint_thread_id=run.thread_id) if other.checkpoint_thread_id == "same" else other
        with pytest.raises(InputMismatchError):
            await service.runtime.prepare_run(grant, shown)
        await assert_nothing_started(place, service, run)


async def test_a_resume_cannot_change_the_review_mode(tmp_path: Path) -> None:
    """EVO-10: the mode is verified at admission against the stored one."""
    async with parked(tmp_path) as (place, service, run, _):
        grant, value = await prepared(service, run)
        with pytest.raises(ReviewModeError):
            await service.runtime.prepare_run(grant, value, AgentContext(review_mode="auto"))
        await assert_nothing_started(place, service, run)


def test_every_refusal_has_a_code_of_its_own() -> None:
    """EVO-15: each with its own reason."""
    errors = [
        GrantExpiredError,
        GrantReusedError,
        GrantTamperedError,
        StaleFenceError,
        CheckpointMovedError,
        InputMismatchError,
        ReviewModeError,
        AdmissionError,
    ]
    assert len({error.code for error in errors}) == len(errors)
