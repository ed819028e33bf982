"""Counting tokens and money: unknown is not zero, estimates say so, receipts carry the change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.models.prices import cost_of
from nodes.models.spec import ModelSpec, PriceOverride
from nodes.models.usage import UNKNOWN, Usage, estimated_usage, reported_usage

pytestmark = pytest.mark.anyio

AT = datetime(2026, 11, 1, tzinfo=UTC)
count = st.one_of(st.none(), st.integers(0, 10**9))
usages = st.builds(Usage, input=count, output=count, cached=count, reasoning=count, estimated=st.booleans())


def test_a_receipt_is_the_change_over_the_run() -> None:
    """HER-11: 100 to 107 and 20 to 23 gives 7, 3 and 10, and nothing else."""
    change = Usage(input=107, output=23) - Usage(input=100, output=20)
    assert change.record() == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def test_unknown_is_not_zero() -> None:
    """HER-11"""
    assert UNKNOWN.record() == {}
    assert (UNKNOWN + UNKNOWN).input is None
    assert (Usage(input=5) + UNKNOWN).input == 5
    assert Usage(input=5).total is None
    assert (UNKNOWN - Usage(input=5)).input is None


@given(usages, usages, usages)
def test_adding_is_the_same_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + UNKNOWN == a


@given(usages)
def test_a_record_can_be_read_back(usage: Usage) -> None:
    assert Usage.from_record(json.loads(json.dumps(usage.record()))) == usage


@given(st.builds(Usage, input=st.integers(0, 999), output=st.integers(0, 999)), usages)
def test_the_change_undoes_the_addition(before: Usage, change: Usage) -> None:
    after = before + change
    assert (after - before).input == (change.input or 0)


@pytest.mark.parametrize(
    "body",
    [None, 7, "x", [], {}, {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": "7"}, {"prompt_tokens": True}],
)
def test_a_usage_object_that_says_nothing_is_no_usage(body: object) -> None:
    assert reported_usage(body) is None


def test_an_estimate_says_so_also_in_a_sum() -> None:
    """S46"""
    estimate = estimated_usage(input_characters=41, output_characters=3)
    assert (estimate.input, estimate.output, estimate.estimated) == (11, 1, True)
    assert (Usage(input=1, output=1) + estimate).estimated
    assert (Usage(input=1) + estimate).record()["estimated"] is True


async def test_a_known_model_at_its_own_address_has_a_price_with_its_source_and_date() -> None:
    spec = ModelSpec(model="gpt-4o", base_url="https://api.openai.com/v1")
    cost = await cost_of(spec, Usage(input=1_000, output=100, cached=500), at=AT)
    assert cost is not None
    assert cost.usd > 0
    assert cost.source.startswith("genai-prices ")
    assert cost.record()["as_of"] == "2026-11-01T00:00:00+00:00"
    json.dumps(cost.record())


@pytest.mark.parametrize(
    ("spec", "usage"),
    [
        (ModelSpec(model="gpt-4o", base_url="http://127.0.0.1:1/v1"), Usage(input=1, output=1)),
        (ModelSpec(model="no-such-model", base_url="https://api.openai.com/v1"), Usage(input=1, output=1)),
        (ModelSpec(model="gpt-4o", base_url="https://api.openai.com/v1"), Usage(input=1)),
        (ModelSpec(model="m"), UNKNOWN),
    ],
)
async def test_an_unknown_price_is_none_and_never_zero(spec: ModelSpec, usage: Usage) -> None:
    assert await cost_of(spec, usage, at=AT) is None


async def test_prices_of_ones_own_come_first() -> None:
    price = PriceOverride(input=1.0, output=10.0, cached=0.1)
    spec = ModelSpec(model="gpt-4o", base_url="https://api.openai.com/v1", price=price)
    cost = await cost_of(spec, Usage(input=1_000_000, output=100_000, cached=500_000, estimated=True), at=AT)
    assert cost is not None
    assert (cost.usd, cost.source, cost.estimated) == (Decimal("1.55"), "configuration", True)


async def test_counts_that_contradict_each_other_do_not_fail_the_booking() -> None:
    spec = ModelSpec(model="gpt-4o", base_url="https://api.openai.com/v1")
    assert await cost_of(spec, Usage(input=1, output=1, cached=50), at=AT) is not None
