"""Which models answer a run, what they cost, and when a conversation is compacted: the bridge to `nodes.models`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage

from checkpoints.clock import Clock, SystemClock
from nodes.context import AgentContext
from nodes.models.chat_models import ChatModels
from nodes.models.context import plan_compaction
from nodes.models.errors import ModelError
from nodes.models.prices import cost_of
from nodes.models.reply import Attempt, Draft, reply
from nodes.models.spec import ModelChain, ModelSpec
from nodes.models.usage import Usage
from nodes.tools.tool import Emit, Tool

DEFAULT_MODEL = "gpt-5-mini"
"""Asked for when neither the run nor the environment names a model."""

SHOWN = frozenset({"token", "reasoning"})
"""Events that show text of an answer; a summary is not one, so its text is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The endpoint to ask when a run's context leaves it open.

    Attributes:
        model: Model to ask; empty takes `DEFAULT_MODEL`.
        base_url: OpenAI-compatible address; empty is an error when the model is asked, and says so.
        key_name: Environment variable that holds the key; empty sends none.
        chain: Configured models, the first one the default and the others its fallbacks; None when none are.
    """

    model: str = ""
    base_url: str = ""
    key_name: str = ""
    chain: ModelChain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One reply and what it took.

    Attributes:
        message: The reply.
        model: Name of the model that answered; the run is pinned to it from now on.
        usage: Tokens of all attempts together.
        context: Input tokens of the attempt that answered, reported or estimated.
        estimated: True when `context` is an estimate.
        cost: US dollars of all attempts whose price is known; None when none is. Unknown is not zero.
    """

    message: AIMessage
    model: str
    usage: Usage
    context: int
    estimated: bool
    cost: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What an attempt to shorten a conversation gave and took.

    Attributes:
        messages: The whole shorter conversation; empty when no model gave a summary, and the conversation stays as it is.
        usage: Tokens of all attempts together.
        cost: US dollars, as in `Answered`.
    """

    messages: tuple[BaseMessage, ...]
    usage: Usage
    cost: Decimal | None


class Answering:
    """Gives the model step its replies. One per runtime."""

    def __init__(self, endpoint: Endpoint, models: ChatModels, clock: Clock | None = None) -> None:
        self._endpoint = endpoint
        self._models = models
        self._clock = clock or SystemClock()

    async def answer(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[Tool],
        context: AgentContext,
        emit: Emit,
        *,
        pinned: str = "",
        deadline: float | None = None,
    ) -> Answered:
        """Streams one reply and gives it whole; see `nodes.models.reply.reply` for errors and cancellation.

        Args:
            messages: The conversation, system prompt first.
            tools: What the model may call.
            context: The run's terms.
            emit: The run's event sink.
            pinned: The model that the task is pinned to; empty leaves the whole chain open.
            deadline: Monotonic second at which the run ends, or None. Waits that would reach it are not begun.
        """
        chain = self.chain(context)
        given = await reply(
            messages,
            tools,
            chain,
            ask=self._models.ask,
            emit=emit,
            deadline=deadline,
            pinned=_pin(chain, pinned),
            clock=self._clock,
        )
        last = given.attempts[-1].usage
        return Answered(
            message=given.message,
            model=given.model,
            usage=given.usage,
            context=last.input or 0,
            estimated=last.estimated,
            cost=await self._cost(chain, given.attempts),
        )

    async def compact(
        self,
        messages: Sequence[AnyMessage],
        context: AgentContext,
        emit: Emit,
        *,
        known: int,
        estimated: bool,
        pinned: str = "",
        deadline: float | None = None,
    ) -> Compacted | None:
        """A shorter conversation with a summary in place of its beginning; None while it fits the window.

        A summary that no model gives is no reason to fail: the conversation may still fit, and if the model is not there,
        asking it for its reply says so.

        Args:
            messages: The conversation, every call answered.
            context: The run's terms.
            emit: The run's event sink.
            known: Input tokens of the newest call, 0 when unknown. Far below the window they spare the look at every message.
            estimated: True when `known` is an estimate, which tells no more than the messages themselves.
            pinned: The model that the task is pinned to, whose window counts; empty takes the chain's first model.
            deadline: Monotonic second at which the run ends, or None.
        """
        chain = self.chain(context)
        pin = _pin(chain, pinned)
        window = self._models.window(chain.candidates(pin)[0])
        if known and known < window / 2:
            return None
        plan = plan_compaction(messages, window=window, known=None if estimated else known or None)
        if plan is None:
            return None
        draft = Draft()
        try:
            summary = await self._summary(plan.request(window), chain, pin, emit, deadline, draft)
        except ModelError as error:
            emit("compaction_failed", cause=error.code)
            shorter: list[BaseMessage] = []
        else:
            emit("compacted", replaced=len(plan.replaced), kept=len(plan.kept), summary_characters=len(summary))
            shorter = plan.result(summary)
        return Compacted(messages=tuple(shorter), usage=draft.usage, cost=await self._cost(chain, draft.attempts))

    def chain(self, context: AgentContext) -> ModelChain:
        """The models of a run. Keys' variables are named here and read only when a model is asked."""
        configured = self._endpoint.chain
        if configured is not None and not context.base_url:
            return _led_by(configured, context.model)
        spec = ModelSpec.checked(
            model=context.model or self._endpoint.model or DEFAULT_MODEL,
            base_url=context.base_url or self._endpoint.base_url,
            api_key_env=self._endpoint.key_name or None,
        )
        return ModelChain.of(spec)

    async def price(self, chain: ModelChain, model: str, usage: Usage) -> Decimal | None:
        """US dollars for some usage of one model of a chain; None when its price or the counts are unknown."""
        spec = next((spec for spec in chain.models if spec.name == model), None)
        cost = await cost_of(spec, usage, at=self._clock.now()) if spec is not None else None
        return cost.usd if cost is not None else None

    async def _cost(self, chain: ModelChain, attempts: Sequence[Attempt]) -> Decimal | None:
        costs = [await self.price(chain, attempt.model, attempt.usage) for attempt in attempts]
        known = [cost for cost in costs if cost is not None]
        return sum(known, Decimal(0)) if known else None

    async def _summary(
        self,
        request: list[BaseMessage],
        chain: ModelChain,
        pin: str | None,
        emit: Emit,
        deadline: float | None,
        draft: Draft,
    ) -> str:
        def quietly(kind: str, /, **payload: Any) -> None:
            if kind not in SHOWN:
                emit(kind, **payload, purpose="summary")

        given = await reply(
            request,
            (),
            chain,
            ask=self._models.ask,
            emit=quietly,
            deadline=deadline,
            pinned=pin,
            draft=draft,
            clock=self._clock,
        )
        return given.message.text


def _pin(chain: ModelChain, pinned: str) -> str | None:
    """The pinned model where the chain has it. A task whose model is no longer configured goes on with the others."""
    return pinned if any(spec.name == pinned for spec in chain.models) else None


def _led_by(chain: ModelChain, model: str) -> ModelChain:
    """The chain with the asked-for model first. One that it does not name has the first one's address, but not its price."""
    if not model:
        return chain
    first = next((spec for spec in chain.models if model in (spec.name, spec.model)), None)
    if first is None:
        first = chain.models[0].model_copy(update={"model": model, "name": model, "window": None, "price": None})
    rest = [spec for spec in chain.models if spec.name != first.name]
    return ModelChain.of(first, *rest)
