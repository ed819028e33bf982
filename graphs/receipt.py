"""What a run took: the change over the run, never cumulative numbers, and never the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from nodes.answering import Answering
from nodes.context import AgentContext
from nodes.models.events import MODEL_ATTEMPT
from nodes.models.usage import UNKNOWN, Usage


class Tally:
    """Counts the model attempts of one run, also those that failed, were cancelled, or were made before a take-over."""

    def __init__(self) -> None:
        self._attempts: list[tuple[str, Usage, bool]] = []

    def take(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Looks at one event of the run."""
        if kind == MODEL_ATTEMPT:
            answered = payload["status"] == "completed"
            self._attempts.append((payload["model"], Usage.from_record(payload["usage"]), answered))

    async def receipt(self, answering: Answering, context: AgentContext) -> dict[str, Any]:
        """Usage, cost and who answered, as JSON.

        Returns:
            `usage` with the known counts, `attempts`, `estimated_cost_usd` (a decimal text, None while no price is known),
            `model` and `provider` of the last answer (empty when nothing answered).
        """
        chain = answering.chain(context)
        addresses = {spec.name: urlsplit(spec.base_url).hostname or "" for spec in chain.models}
        total = sum((usage for _, usage, _ in self._attempts), UNKNOWN)
        costs = [await answering.price(chain, model, usage) for model, usage, _ in self._attempts]
        known = [cost for cost in costs if cost is not None]
        model = next((name for name, _, answered in reversed(self._attempts) if answered), "")
        return {
            "attempts": len(self._attempts),
            "usage": total.record(),
            "estimated_cost_usd": str(sum(known)) if known else None,
            "model": model,
            "provider": addresses.get(model, ""),
        }
