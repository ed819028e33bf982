"""Storage grows with the conversation and no faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.storage import Measure, ours, plain, real_text

pytestmark = pytest.mark.anyio


async def test_bytes_a_turn_stay_the_same_while_plain_langgraph_grows(tmp_path: Path) -> None:
    """Promise 8, S62: constant within 20 percent from 100 to 300 turns; plain LangGraph is quadratic (langgraph-facts 5)."""
    text = real_text()
    hundred, three_hundred = [await ours(turns, text, tmp_path) for turns in (100, 300)]
    theirs = await plain(100, text, tmp_path)
    assert within(three_hundred, hundred)
    assert theirs.own_bytes > 50 * hundred.own_bytes


@pytest.mark.soak
async def test_a_thousand_turns_take_at_most_a_250th_of_plain_langgraph_and_as_long_each_as_the_first(tmp_path: Path) -> None:
    """Issue: 6.7 MB at 1000 turns (plain: 1,679 MB); time per turn at turn 1000 at most 1.3 times that at turn 10."""
    text = real_text()
    hundred, thousand = [await ours(turns, text, tmp_path) for turns in (100, 1000)]
    assert within(thousand, hundred)
    assert thousand.own_bytes < 6_700_000
    again = await ours(999, text, tmp_path)
    assert min(each.late_ms / each.early_ms for each in (thousand, again)) < 1.3


def within(left: Measure, right: Measure) -> bool:
    return 0.8 < left.bytes_a_turn / right.bytes_a_turn < 1.2
