"""What a run took: the change over the run, never cumulative numbers, and never the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from nodes.answering import Answering
from nodes.context import AgentContext
from nodes.models.events import MODEL_ATTEMPT, MODEL_STARTED
from nodes.models.spec import InvalidSpecError, ModelChain
from nodes.models.usage import UNKNOWN, Usage


class Tally:
    """Counts the model attempts of one run, also those that failed, were cancelled, or were made before a take-over."""

    def __init__(self) -> None:
        self._begun = 0
        self._attempts: list[tuple[str, Usage, bool]] = []

    def take(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Looks at one event of the run."""
        if kind == MODEL_STARTED:
            self._begun += 1
        elif kind == MODEL_ATTEMPT:
            answered = payload["status"] == "completed"
            self._attempts.append((payload["model"], Usage.from_record(payload["usage"]), answered))

    async def receipt(self, answering: Answering, context: AgentContext) -> dict[str, Any]:
        """Usage, cost and who answered, as JSON. Never fails: without it a run would have no ending.

        Returns:
            `usage` with the known counts, `attempts` (those too that a dead runtime left without an end), `estimated_cost_usd`
            (a decimal text, None while no price is known), `model` and `provider` of the last answer (empty when nothing
            answered).
        """
        chain = _chain(answering, context)
        addresses = {spec.name: urlsplit(spec.base_url).hostname or "" for spec in chain.models} if chain else {}
        total = sum((usage for _, usage, _ in self._attempts), UNKNOWN)
        costs = [await answering.price(chain, model, usage) for model, usage, _ in self._attempts] if chain else []
        known = [cost for cost in costs if cost is not None]
        model = next((name for name, _, answered in reversed(self._attempts) if answered), "")
        return {
            "attempts": self._begun,
            "usage": total.record(),
            "estimated_cost_usd": str(sum(known)) if known else None,
            "model": model,
            "provider": addresses.get(model, ""),
        }


def _chain(answering: Answering, context: AgentContext) -> ModelChain | None:
    """The run's models; None for a run that failed because its terms name none that can be asked."""
    try:
        return answering.chain(context)
    except InvalidSpecError:
        return None
