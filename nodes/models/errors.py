"""What can go wrong with a model call, sorted by who must act.

Every error names the model and the address, says what to do next, and is free of keys: texts from outside reach it only
through a `Redactor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from checkpoints.errors import CheckreinError


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which model was asked, and where, in words that are safe to show.

    Attributes:
        model: The model's name in its chain.
        url: The base URL without user, password and query.
        key_source: Where the key comes from, for example `the environment variable OPENAI_API_KEY`.
    """

    model: str
    url: str
    key_source: str = "no key is configured"

    def __str__(self) -> str:
        return f"{self.model} at {self.url}"


class ModelError(CheckreinError):
    """A model call that gave no reply.

    Attributes:
        target: Which model, and where.
        retryable: Whether the same request may succeed at the same model a little later.
        other_model_may_help: Whether the next model of the chain is worth asking.
        status: The HTTP status, where there was one.
        retry_after: The response's Retry-After header as it came, or None.
    """

    code: ClassVar[str] = "model_error"
    retryable: ClassVar[bool] = False
    other_model_may_help: ClassVar[bool] = True

    def __init__(self, target: Target, sentence: str, *, hint: str, status: int | None = None) -> None:
        self.target = target
        self.status = status
        self.retry_after: str | None = None
        self.hint = hint
        super().__init__(sentence)


class NoEndpointError(ModelError):
    """No address is configured for the model. Nothing was sent."""

    code = "model_no_endpoint"

    def __init__(self, target: Target) -> None:
        super().__init__(
            target,
            f"No endpoint is configured for the model {target.model}.",
            hint="Give a base URL of an OpenAI-compatible service, for example http://127.0.0.1:11434/v1.",
        )


class MissingKeyError(ModelError):
    """The key's environment variable is named but not set. Nothing was sent."""

    code = "model_missing_key"

    def __init__(self, target: Target) -> None:
        super().__init__(
            target,
            f"The key for {target} is missing: {target.key_source} is not set.",
            hint=f"Set {target.key_source}, or name another one in the model's configuration.",
        )


class ParametersError(ModelError):
    """The model's configured parameters are not what ChatOpenAI accepts. Nothing was sent."""

    code = "model_parameters"

    def __init__(self, target: Target, problem: str) -> None:
        super().__init__(
            target,
            f"The parameters of the model {target} are wrong: {problem}.",
            hint="Correct the model's `parameters`; their names and values are those of ChatOpenAI.",
        )


class UnsendableError(ModelError):
    """The conversation holds something that cannot be written as a request. Nothing was sent."""

    code = "model_unsendable"
    other_model_may_help = False

    def __init__(self, target: Target, what: str) -> None:
        super().__init__(
            target,
            f"The request to {target} cannot be written: {what}.",
            hint="Remove or convert that message; only text and JSON content blocks can be sent.",
        )


class UnreachableError(ModelError):
    """There was no connection: refused, or the network said no. The request was not processed."""

    code = "model_unreachable"
    retryable = True

    def __init__(self, target: Target, reason: str) -> None:
        super().__init__(
            target,
            f"The model {target} cannot be reached: {reason}.",
            hint="Check that the service is running and that its host and port are right.",
        )


class ConnectionRefusedByModelError(UnreachableError):
    """Nothing listens on the address."""

    code = "model_connection_refused"

    def __init__(self, target: Target) -> None:
        super().__init__(target, "the connection was refused, nothing listens there")


class HostUnknownError(UnreachableError):
    """The host's name has no address."""

    code = "model_host_unknown"

    def __init__(self, target: Target, host: str) -> None:
        super().__init__(target, f"the host name {host} is unknown")
        self.hint = "Check the spelling of the base URL and this machine's name resolution."


class TlsError(ModelError):
    """The TLS handshake failed: a certificate that is not trusted, or a server that does not speak TLS there."""

    code = "model_tls"

    def __init__(self, target: Target, reason: str) -> None:
        super().__init__(
            target,
            f"No secure connection to {target}: {reason}.",
            hint="Check http against https in the base URL, and that this machine trusts the certificate's issuer.",
        )


class StatusError(ModelError):
    """The service answered with a status that is not success, and none of the classes below fits.

    Attributes:
        body: What the service said, redacted and bounded.
    """

    code = "model_status"

    def __init__(self, target: Target, status: int, body: str, *, said: str = "", hint: str = "") -> None:
        self.body = body
        what = said or f"answered with HTTP status {status}"
        super().__init__(
            target,
            f"The model {target} {what}{f': {body}' if body else '.'}",
            hint=hint or "Read the service's answer above; check the base URL and the model's name.",
            status=status,
        )


class BadRequestError(StatusError):
    """400, 413 or 422: the service refuses the request itself; another model would get the same one."""

    code = "model_bad_request"
    other_model_may_help = False

    def __init__(self, target: Target, status: int, body: str) -> None:
        super().__init__(
            target,
            status,
            body,
            said=f"refused the request (HTTP {status})",
            hint="Check the model's parameters; a model that has no tool calling refuses requests with tools.",
        )


class ContextOverflowError(StatusError):
    """The conversation is longer than the model's window. Compact it and ask again, or ask a model with a larger one."""

    code = "model_context_overflow"

    def __init__(self, target: Target, status: int, body: str) -> None:
        super().__init__(
            target,
            status,
            body,
            said=f"cannot take a conversation this long (HTTP {status})",
            hint="Set the model's window in its configuration, so that the conversation is compacted in time.",
        )


class UnauthorizedError(StatusError):
    """401: the key is missing or wrong."""

    code = "model_unauthorized"

    def __init__(self, target: Target, status: int, body: str) -> None:
        said = f"refused the key (HTTP {status}; the key: {target.key_source})"
        super().__init__(target, status, body, said=said, hint="Set a valid key, and check that it belongs to this base URL.")


class ForbiddenError(StatusError):
    """403: the key is known and may not use this model."""

    code = "model_forbidden"

    def __init__(self, target: Target, status: int, body: str) -> None:
        hint = "Ask the service's owner for access to the model, or choose another one."
        super().__init__(target, status, body, said=f"forbids the call (HTTP {status})", hint=hint)


class ModelNotFoundError(StatusError):
    """404: the model or the path does not exist."""

    code = "model_not_found"

    def __init__(self, target: Target, status: int, body: str) -> None:
        hint = "Check the model's name (GET <base URL>/models lists them) and that the base URL ends where the service says."
        super().__init__(target, status, body, said=f"does not exist (HTTP {status})", hint=hint)


class RateLimitedError(StatusError):
    """429: too many requests or no quota, and no retry is left."""

    code = "model_rate_limited"
    retryable = True

    def __init__(self, target: Target, status: int, body: str) -> None:
        hint = "Wait and try again, raise the quota, or give the model retries or a fallback."
        super().__init__(target, status, body, said=f"accepts no more requests now (HTTP {status})", hint=hint)


class OverloadedError(StatusError):
    """408, 425 or 5xx: the service cannot answer now."""

    code = "model_unavailable"
    retryable = True

    def __init__(self, target: Target, status: int, body: str) -> None:
        hint = "Try again later, or give the model retries or a fallback."
        super().__init__(target, status, body, said=f"is not available (HTTP {status})", hint=hint)


class ModelTimeoutError(ModelError):
    """The model took too long.

    Attributes:
        phase: `connect`, `first byte` or `between chunks`.
        seconds: The limit that was reached.
    """

    code = "model_timeout"
    retryable = True

    def __init__(self, target: Target, phase: str, seconds: float) -> None:
        self.phase = phase
        self.seconds = seconds
        super().__init__(
            target,
            f"The model {target} took longer than {seconds:g} s ({phase}).",
            hint="Check the service's load, or raise this timeout in the model's configuration.",
        )


class ModelDeadlineError(ModelError):
    """The run's own time is used up. No other model is asked."""

    code = "model_deadline"
    other_model_may_help = False

    def __init__(self, target: Target) -> None:
        hint = "Give the run more time, or a smaller task."
        super().__init__(target, f"The run's time ended before {target} had answered.", hint=hint)


class DisconnectedError(ModelError):
    """The connection broke while the answer was on its way. What arrived is not a reply."""

    code = "model_disconnected"
    retryable = True

    def __init__(self, target: Target, reason: str) -> None:
        super().__init__(
            target,
            f"The model {target} broke off its answer: {reason}.",
            hint="Ask again; when it happens often, check proxies and timeouts between here and the service.",
        )


class TruncatedReplyError(DisconnectedError):
    """The stream ended in good order but without a finish reason, so nobody knows whether the answer is whole."""

    code = "model_truncated"


class EmptyReplyError(ModelError):
    """A complete answer with neither text nor a tool call."""

    code = "model_empty_reply"
    retryable = True

    def __init__(self, target: Target, finish_reason: str) -> None:
        super().__init__(
            target,
            f"The model {target} gave an empty answer (finish reason {finish_reason}).",
            hint="Ask again; with finish reason length, raise the model's limit of output tokens.",
        )


class ProtocolError(ModelError):
    """The answer breaks the wire's rules so that what was meant cannot be known. No part of it is used."""

    code = "model_protocol"
    retryable = True

    def __init__(self, target: Target, problem: str) -> None:
        super().__init__(
            target,
            f"The answer of {target} cannot be understood: {problem}.",
            hint="The service or a gateway before it does not keep to the chat-completions wire; try another one.",
        )


class ReportedError(ModelError):
    """The service reported an error inside its stream."""

    code = "model_reported_error"
    retryable = True

    def __init__(self, target: Target, message: str) -> None:
        hint = "Read the service's message above."
        super().__init__(target, f"The model {target} reported an error in its answer: {message}", hint=hint)


_BY_STATUS: dict[int, type[StatusError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: ModelNotFoundError,
    408: OverloadedError,
    413: BadRequestError,
    422: BadRequestError,
    425: OverloadedError,
    429: RateLimitedError,
}
_OVERFLOW_WORDS = ("context_length_exceeded", "maximum context length", "context window", "prompt is too long")
_SERVER_ERROR = 500


def status_error(target: Target, status: int, body: str, retry_after: str | None = None) -> StatusError:
    """The error for an HTTP status.

    Args:
        target: Who answered.
        status: The status.
        body: The answer's body, redacted and bounded.
        retry_after: The Retry-After header as it came.
    """
    kind = _BY_STATUS.get(status, OverloadedError if status >= _SERVER_ERROR else StatusError)
    if kind is BadRequestError and any(words in body.lower() for words in _OVERFLOW_WORDS):
        kind = ContextOverflowError
    error = kind(target, status, body)
    error.retry_after = retry_after
    return error
