"""Which models answer a run, and the message that comes of it: the bridge between the model step and `nodes.models`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage

from checkpoints.clock import Clock, SystemClock
from nodes.context import AgentContext
from nodes.models.chat_models import ChatModels
from nodes.models.reply import reply
from nodes.models.spec import ModelChain, ModelSpec
from nodes.tools.tool import Emit, Tool

DEFAULT_MODEL = "gpt-5-mini"
"""Asked for when neither the run nor the environment names a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The endpoint to ask when a run's context leaves it open.

    Attributes:
        model: Model to ask; empty takes `DEFAULT_MODEL`.
        base_url: OpenAI-compatible address; empty is an error when the model is asked, and says so.
        key_name: Environment variable that holds the key; empty sends none.
    """

    model: str = ""
    base_url: str = ""
    key_name: str = ""


class Answering:
    """Gives the model step its replies. One per runtime; close it with the runtime."""

    def __init__(self, endpoint: Endpoint, models: ChatModels, clock: Clock | None = None) -> None:
        self._endpoint = endpoint
        self._models = models
        self._clock = clock or SystemClock()

    async def __call__(
        self, messages: Sequence[BaseMessage], tools: Sequence[Tool], context: AgentContext, emit: Emit
    ) -> AIMessage:
        """Streams one reply and gives it whole; see `nodes.models.reply.reply` for errors and cancellation."""
        chain = self.chain(context)
        answered = await reply(messages, tools, chain, ask=self._models.ask, emit=emit, clock=self._clock)
        return answered.message

    def chain(self, context: AgentContext) -> ModelChain:
        """The models of a run. The key's variable is named here and read only when the model is asked."""
        spec = ModelSpec(
            model=context.model or self._endpoint.model or DEFAULT_MODEL,
            base_url=context.base_url or self._endpoint.base_url,
            api_key_env=self._endpoint.key_name or None,
        )
        return ModelChain.of(spec)
