"""What tokens cost. The only module that imports genai_prices: import it where costs are booked, not where models are asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import genai_prices

from nodes.models.spec import ModelSpec, PriceOverride
from nodes.models.usage import Usage

_MILLION = Decimal(1_000_000)
_LIBRARY = f"genai-prices {genai_prices.__version__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The price of some usage.

    Attributes:
        usd: US dollars.
        source: Which table it is from: `genai-prices` with its version, or `configuration`.
        as_of: The instant whose prices were used; prices change, a booked cost does not.
        estimated: True when the token counts were estimates.
    """

    usd: Decimal
    source: str
    as_of: datetime
    estimated: bool

    def record(self) -> dict[str, Any]:
        """The cost as plain JSON; the amount is text, so that no digit is lost."""
        return {
            "usd": str(self.usd),
            "source": self.source,
            "as_of": self.as_of.isoformat(),
            "estimated": self.estimated,
        }


async def cost_of(spec: ModelSpec, usage: Usage, *, at: datetime) -> Cost | None:
    """The cost of usage at a model's prices.

    The spec's own prices come first. Otherwise the price library is asked for the model at exactly this address: a model of
    the same name on another service has another price. The first look-up loads the table in a thread.

    Args:
        spec: Who answered.
        usage: Tokens.
        at: The instant of the call, aware.

    Returns:
        The cost, or None when the counts or the price are unknown. Unknown is not zero.
    """
    if usage.input is None or usage.output is None:
        return None
    if spec.price is not None:
        usd = _own_price(spec.price, usage)
        return Cost(usd=usd, source="configuration", as_of=at, estimated=usage.estimated)
    found = await asyncio.to_thread(_library_price, spec, usage, at)
    return None if found is None else Cost(usd=found, source=_LIBRARY, as_of=at, estimated=usage.estimated)


def _own_price(price: PriceOverride, usage: Usage) -> Decimal:
    cached = min(usage.cached or 0, usage.input or 0)
    cached_price = price.input if price.cached is None else price.cached
    parts = (((usage.input or 0) - cached, price.input), (cached, cached_price), (usage.output or 0, price.output))
    return sum((Decimal(tokens) * Decimal(str(rate)) for tokens, rate in parts), Decimal(0)) / _MILLION


def _library_price(spec: ModelSpec, usage: Usage, at: datetime) -> Decimal | None:
    cached = None if usage.cached is None else min(usage.cached, usage.input or 0)
    counts = genai_prices.Usage(input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=cached)
    try:
        price = genai_prices.calc_price(counts, spec.model, provider_api_url=spec.base_url, genai_request_timestamp=at)
    except (LookupError, ValueError):
        return None
    return price.total_price
