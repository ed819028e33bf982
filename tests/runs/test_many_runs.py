"""Many runs on one store: no error, few commits, linear storage."""

from __future__ import annotations

import pytest

from tests.bench.runs import crowds, long_run

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(300)
async def test_many_runs_at_once_share_their_commits() -> None:
    """S61, G8: 80 runs on one file from one process, all complete, fewer than 0.4 commits a turn (0.2 at 200 runs)."""
    [report] = await crowds(1, 80)
    assert report["outcomes"] == ["completed"]
    assert report["commits a turn"] < 0.4


@pytest.mark.timeout(300)
async def test_four_processes_work_on_one_file() -> None:
    """S61: 4 processes with 12 runs each on one SQLite file, no error."""
    reports = await crowds(4, 12)
    assert [report["outcomes"] for report in reports] == [["completed"]] * 4


@pytest.mark.timeout(300)
async def test_a_long_run_grows_by_the_same_number_of_bytes_a_turn() -> None:
    """S62, promise 8: 60 and 240 turns with 1 KB results, within 30 percent of each other and below 6 KB a turn."""
    short, long = await long_run(60), await long_run(240)
    assert long["bytes a turn"] < 6_000
    assert abs(short["bytes a turn"] - long["bytes a turn"]) < 0.3 * long["bytes a turn"]


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_two_hundred_runs_on_one_file() -> None:
    """S61, G8: 200 runs in one process with fewer than 0.2 commits a turn, and 50 in each of four."""
    [alone] = await crowds(1, 200)
    assert alone["outcomes"] == ["completed"]
    assert alone["commits a turn"] < 0.2
    for report in await crowds(4, 50):
        assert report["outcomes"] == ["completed"]


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_thousand_turns_stay_below_the_bound() -> None:
    """S62, promise 8: at most 1/250 of the 1,679 MB that plain LangGraph writes for the same work."""
    report = await long_run(1000)
    assert report["bytes"] < 1_679_000_000 / 250
