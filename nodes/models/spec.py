"""Which models may answer, as data: one model's address, key, limits and prices, and the order in which models are asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from checkpoints.errors import UsageError
from nodes.models.errors import Target
from nodes.models.redact import Redactor

PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]
PerMillion = Annotated[float, Field(ge=0)]


_SECRET_NAME = re.compile(r"(?i)key|token|secret|password|signature|^sig$|^code$")
_RESERVED = frozenset(
    {
        "api_key", "async_client", "base_url", "cache", "client", "default_headers", "default_query", "http_async_client",
        "http_client", "max_retries", "messages", "model", "model_name", "n", "openai_api_base", "openai_api_key",
        "openai_organization", "openai_proxy", "organization", "request_timeout", "root_async_client", "root_client", "stream",
        "stream_chunk_timeout", "stream_usage", "streaming", "timeout", "tools", "use_responses_api",
    }
)  # fmt: skip
"""ChatOpenAI's names for what a spec says by itself, or for a client that is not used here."""


class UnknownPinnedModelError(UsageError):
    """A run is pinned to a model that its chain no longer names."""

    code = "model_pin_unknown"

    def __init__(self, pinned: str, known: Sequence[str]) -> None:
        self.pinned = pinned
        self.known = tuple(known)
        self.hint = f"Configure the model {pinned} again, or start a new run."
        super().__init__(f"The run is pinned to the model {pinned}, but its chain has only {', '.join(known)}.")


class InvalidSpecError(UsageError):
    """A model's configuration does not fit. The sentence names each wrong field, and no value: one of them may be a key."""

    code = "model_spec_invalid"

    def __init__(self, model: str, problems: Sequence[str]) -> None:
        self.model = model
        self.problems = tuple(problems)
        self.hint = "Correct the fields named above."
        super().__init__(f"The configuration of the model {model} cannot be used: {'; '.join(problems)}.")


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Timeouts(_Value):
    """Seconds that each part of a call may take.

    Attributes:
        connect: Name look-up, connection and TLS handshake.
        first_byte: From the request to the first event of the answer; it starts when `connect` is over.
        between_chunks: Between two events. Keep-alive comments do not count as events: a stalled model sends them too.
    """

    connect: PositiveSeconds = 10.0
    first_byte: PositiveSeconds = 120.0
    between_chunks: PositiveSeconds = 120.0


class PriceOverride(_Value):
    """Prices of one's own, in US dollars for a million tokens; they replace the price library's."""

    input: PerMillion
    output: PerMillion
    cached: PerMillion | None = None


class ModelSpec(_Value):
    """One model at one address.

    Attributes:
        model: The name that goes on the wire.
        base_url: The service's address, up to and with its version, for example `http://127.0.0.1:11434/v1`. Empty means
            that none is configured, which is an error when the model is asked.
        name: What this entry is called in its chain and in events; the model's name when empty.
        api_key_env: Environment variable that holds the key. Without it and `api_key` no key is sent.
        api_key: The key itself, for callers that hold it. Never serialised, never shown.
        retries: Further attempts at this model before the first visible chunk. Off by default.
        timeouts: Limits of one attempt.
        window: Tokens that fit the model's window; the model's profile decides when None.
        price: Prices that replace the price library's.
        stream_usage: Ask for token counts in the stream. Off only for services that refuse the question.
        parameters: Further fields for the model, as ChatOpenAI names them (temperature, reasoning_effort, extra_body, ...).
    """

    model: str = Field(min_length=1)
    base_url: str = ""
    name: str = ""
    api_key_env: str | None = None
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False)
    retries: int = Field(default=0, ge=0, le=20)
    timeouts: Timeouts = Timeouts()
    window: int | None = Field(default=None, gt=0)
    price: PriceOverride | None = None
    stream_usage: bool = True
    parameters: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def checked(cls, **fields: Any) -> Self:
        """A spec from values that a person gave.

        Raises:
            InvalidSpecError: They do not fit.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, item['loc'])) or 'the model'}: {item['msg']}" for item in error.errors()]
            raise InvalidSpecError(str(fields.get("model", "")), problems) from None

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in {"http", "https"} or not parts.hostname):
            msg = "a base URL starts with http:// or https:// and names a host"
            raise ValueError(msg)
        if parts.username or parts.password:
            msg = "a base URL carries no user and no password; name the key's environment variable instead"
            raise ValueError(msg)
        if any(_SECRET_NAME.search(name) for name, _ in parse_qsl(parts.query)):
            msg = "a base URL carries no key in its query; name the key's environment variable instead"
            raise ValueError(msg)
        return value.rstrip("/")

    @field_validator("parameters")
    @classmethod
    def _are_the_models_own(cls, value: dict[str, Any]) -> dict[str, Any]:
        reserved = sorted(_RESERVED & value.keys())
        if reserved:
            msg = f"parameters are for the model; {', '.join(reserved)} cannot be set there"
            raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not self.name:
            object.__setattr__(self, "name", self.model)
        return self

    @property
    def target(self) -> Target:
        """Who this is, in words that are safe to show."""
        if self.api_key_env:
            source = f"the environment variable {self.api_key_env}"
        else:
            source = "no key is configured" if self.api_key is None else "given by the caller"
        return Target(model=self.name, url=Redactor().url(self.base_url) or "no address", key_source=source)

    def key(self, environment: Callable[[str], str | None]) -> str | None:
        """The key without surrounding white space, or None when none is configured or its variable is not set."""
        if self.api_key is not None:
            return self.api_key.get_secret_value().strip()
        return (environment(self.api_key_env) or "").strip() or None if self.api_key_env else None


class ModelChain(_Value):
    """The models of an agent, first choice first."""

    models: tuple[ModelSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [spec.name for spec in self.models]
        if len(set(names)) < len(names):
            msg = "two models of a chain have the same name; give one of them another `name`"
            raise ValueError(msg)
        return self

    @classmethod
    def of(cls, *models: ModelSpec) -> Self:
        """A chain from Python values."""
        return cls(models=models)

    def candidates(self, pinned: str | None) -> tuple[ModelSpec, ...]:
        """The models that may answer now: all of them, or only the pinned one.

        Raises:
            UnknownPinnedModelError: The chain does not name the pinned model.
        """
        if pinned is None:
            return self.models
        kept = tuple(spec for spec in self.models if spec.name == pinned)
        if not kept:
            raise UnknownPinnedModelError(pinned, [spec.name for spec in self.models])
        return kept
