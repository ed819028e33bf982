"""Two real processes want one thread at the same moment: one wins, the other learns why, and the effect happens once."""

from __future__ import annotations

import asyncio

import pytest

from checkpoints.ledger import Ledger
from checkpoints.records import NewApproval
from checkpoints.saver import ThreadSaver
from checkpoints.status import RunStatus
from checkpoints.store import Store
from tests.store.conftest import Racer
from tests.store.scenes import conversation, start

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[15, pytest.param(100, marks=pytest.mark.soak)])
def rounds(request: pytest.FixtureRequest) -> int:
    """How often each pair races."""
    return int(request.param)


@pytest.fixture
async def pair(store: Store, address: str, racers: list[Racer]) -> tuple[Racer, Racer]:
    """Two processes that have the test's store open."""
    await asyncio.gather(*(racer({"do": "open", "address": address}) for racer in racers[:2]))
    return racers[0], racers[1]


async def park(store: Store, thread_id: str) -> None:
    ledger = Ledger(store)
    run = await start(ledger, thread_id)
    pending = [NewApproval(interrupt_id="i", checkpoint_id="c")]
    await ledger.finish(run.run_id, run.fence, RunStatus.AWAITING_INPUT, {}, pending)


def one_winner(results: list[dict[str, str]], *refusals: str) -> None:
    assert sorted(key for result in results for key in result) == ["lost", "won"]
    assert next(result["lost"] for result in results if "lost" in result) in refusals


@pytest.mark.parametrize(
    ("left", "right"),
    [("approve", "approve"), ("approve", "reject"), (None, "approve")],
    ids=["two approvals", "approval against reject", "new message against approval"],
)
async def test_of_two_admissions_of_one_thread_one_wins(
    store: Store, pair: tuple[Racer, Racer], rounds: int, left: str | None, right: str | None
) -> None:
    """Issue: race test, each pair on both stores."""
    first, second = pair
    for number in range(rounds):
        thread_id = f"t{number}"
        await park(store, thread_id)
        request = {"do": "admit", "thread": thread_id, "fence": 1}
        results = await asyncio.gather(first({**request, "decision": left}), second({**request, "decision": right}))
        one_winner(results, "thread_busy", "stale_fence")
        ledger = Ledger(store)
        assert len(await ledger.runs(thread_id=thread_id, status=RunStatus.RUNNING)) == 1
        assert len(await ledger.runs(thread_id=thread_id)) == 2


async def test_of_two_uses_of_one_grant_on_two_threads_one_wins(store: Store, pair: tuple[Racer, Racer], rounds: int) -> None:
    """EVO-15: a grant is used once."""
    first, second = pair
    for number in range(rounds):
        request = {"do": "admit", "fence": 0, "grant": f"g{number}"}
        results = await asyncio.gather(first({**request, "thread": f"l{number}"}), second({**request, "thread": f"r{number}"}))
        one_winner(results, "grant_reused")


async def test_of_two_workers_after_a_false_lease_loss_one_goes_on(
    store: Store, pair: tuple[Racer, Racer], rounds: int
) -> None:
    first, second = pair
    for number in range(rounds):
        run = await start(Ledger(store), f"t{number}")
        request = {"do": "adopt", "thread": run.thread_id, "run": run.run_id, "fence": run.fence}
        results = await asyncio.gather(first(request), second(request))
        one_winner(results, "stale_fence")


async def test_of_two_processes_with_the_same_fence_one_starts_the_effect(
    store: Store, pair: tuple[Racer, Racer], rounds: int
) -> None:
    """Promise 3: even somebody who copied a fence cannot run an effect twice."""
    first, second = pair
    for number in range(rounds):
        run = await start(Ledger(store), f"t{number}")
        request = {"do": "enter", "thread": run.thread_id, "run": run.run_id, "fence": run.fence}
        results = await asyncio.gather(first(request), second(request))
        assert sorted(result["won"] for result in results) == ["Fresh", "Unknown"]


async def test_four_processes_save_on_one_store_without_an_error(store: Store, address: str, racers: list[Racer]) -> None:
    """S61: 4 x 50 checkpoints, while a listing is held open."""
    await asyncio.gather(*(racer({"do": "open", "address": address}) for racer in racers))
    saver = ThreadSaver(store)
    listing = saver.alist(None)
    saves = [{"do": "save", "thread": f"t{number}", "turns": 25} for number in range(4)]
    results = await asyncio.gather(*(racer(save) for racer, save in zip(racers, saves, strict=True)))
    assert results == [{"won": "51"}] * 4
    assert len([found async for found in listing]) == 4 * 52
    app = conversation(25).compile(checkpointer=saver)
    for number in range(4):
        state = await app.aget_state({"configurable": {"thread_id": f"t{number}"}})
        assert len(state.values["messages"]) == 51


async def test_a_run_that_lost_its_thread_to_another_process_saves_nothing_more(
    store: Store, pair: tuple[Racer, Racer]
) -> None:
    first, second = pair
    ledger = Ledger(store)
    run = await start(ledger, "t")
    request = {"do": "save", "thread": "t", "run": run.run_id, "turns": 3}
    assert await first({**request, "fence": run.fence}) == {"won": "7"}
    heir = await ledger.adopt(run.run_id, owner_id="heir", expected_fence=run.fence)
    results = await asyncio.gather(first({**request, "fence": run.fence}), second({**request, "fence": heir.fence}))
    assert results == [{"lost": "stale_fence"}, {"won": "14"}]
