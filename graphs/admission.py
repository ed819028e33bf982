"""Permission to start one run: a grant is signed, a quote answers it, an admission accepts the quote. There is no side door.

A grant binds one exact input to one exact checkpoint of one thread, expires, and is used once. Signing is itsdangerous'
(HMAC over a canonical body, a salt per kind of token); that a grant is used once and that the thread has not moved is
checked by the ledger in the transaction that starts the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import orjson
from itsdangerous import BadData, URLSafeSerializer
from langchain_core.messages import BaseMessage, message_to_dict
from langgraph.types import Command

from checkpoints.clock import Clock, SystemClock, fresh_id
from checkpoints.errors import CheckreinError, ConflictError
from checkpoints.records import Approval

DEFAULT_TTL_MS = 60_000
"""Milliseconds between signing a grant and starting its run, when the caller does not say."""


class AdmissionError(CheckreinError):
    """The run was not admitted. Nothing was started and nothing was changed."""

    code = "not_admitted"
    hint = "Ask for a new grant and start again."


class GrantExpiredError(AdmissionError):
    """The grant's lifetime is over. Compare `GrantReusedError`: that one had been used in time."""

    code = "grant_expired"

    def __init__(self, expired_at: datetime) -> None:
        self.expired_at = expired_at
        super().__init__(f"The grant expired at {expired_at.isoformat()}; nothing was started.")


class GrantTamperedError(AdmissionError):
    """The signature does not fit: the token was changed, cut, or signed with another key."""

    code = "grant_tampered"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"The {kind} does not carry this store's signature; nothing was started.")


class InputMismatchError(AdmissionError):
    """The input is not the one that the grant was signed for."""

    code = "input_mismatch"

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        super().__init__(f"The input for thread {thread_id} is not the one that the grant names; nothing was started.")


class NothingWaitsError(ConflictError):
    """A decision came for a thread that does not wait for one."""

    code = "nothing_waits"

    def __init__(self, thread_id: str, last: Approval | None) -> None:
        self.thread_id = thread_id
        self.last = last
        how = f": its last approval was {last.status}" if last else ""
        super().__init__(f"Thread {thread_id} does not wait for a decision{how}.")
        self.hint = f"`checkrein show {thread_id}` tells what happened to it."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInput:
    """What a run is given: new messages, or a `Command` that resumes, and the thread that it goes to.

    Attributes:
        value: `{"messages": [...]}` for a new task, `Command(resume={"decisions": [...]})` for an approval, None to continue
            an interrupted run from its checkpoint.
        checkpoint_thread_id: The LangGraph thread.
    """

    value: Mapping[str, Any] | Command[Any] | None
    checkpoint_thread_id: str

    def digest(self) -> str:
        """SHA-256 over a canonical JSON form of value and thread: 64 hex digits."""
        body = orjson.dumps([self.checkpoint_thread_id, _plain(self.value)], option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(body).hexdigest()


def _plain(value: Any) -> Any:
    """JSON for the digest. Ids of messages are left out: LangGraph stamps them later."""
    if isinstance(value, Command):
        return {"resume": _plain(value.resume), "update": _plain(value.update), "goto": str(value.goto)}
    if isinstance(value, BaseMessage):
        body = message_to_dict(value)
        return {"type": body["type"], "content": body["data"]["content"]}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What a grant signs.

    Attributes:
        turn_id: The caller's name for what it asks for; may repeat when the same turn is granted again.
        thread_id: The caller's thread (a chat, a ticket).
        subject_id: Who asks.
        requested_model_ref: The model that is asked for; empty takes the runtime's own.
        plan: The caller's price plan, passed through to the receipt.
        roles: What the models are used for; only `model` at present.
        requires_vision: Whether the input has images.
        reasoning_effort: Passed through to the model; empty leaves it alone.
        title_policy: `disabled`: no call is spent on a title.
        gateway_input_digest: `AgentInput.digest()`.
        checkpoint_thread_id: The LangGraph thread.
        checkpoint_snapshot_id: The thread's newest checkpoint, empty for a new thread.
        turn_fencing_token: The thread's fence, 0 for a new thread.
    """

    turn_id: str
    thread_id: str
    subject_id: str
    requested_model_ref: str
    gateway_input_digest: str
    checkpoint_thread_id: str
    checkpoint_snapshot_id: str
    turn_fencing_token: int
    plan: str = "default"
    roles: tuple[str, ...] = ("model",)
    requires_vision: bool = False
    reasoning_effort: str = ""
    title_policy: str = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A verified grant: what was signed, its one-time id and its end."""

    preparation: Preparation
    request_id: str
    expires_at: datetime

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """Reads what `QuoteAuthority.sign_preparation` signed."""
        known = {item.name for item in fields(Preparation)}
        values = {name: value for name, value in body["preparation"].items() if name in known}
        values["roles"] = tuple(values["roles"])
        return cls(
            preparation=Preparation(**values),
            request_id=body["request_id"],
            expires_at=datetime.fromtimestamp(body["expires_ms"] / 1000, UTC),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The priced answer to a grant.

    Attributes:
        grant: The grant that it answers.
        quote_id: Its own name.
        model: The model that will answer.
        input: The input that was checked against the grant.
        terms: What the run will be held to (review mode, workspace, limits), JSON.
    """

    grant: Grant
    quote_id: str
    model: str
    input: AgentInput
    terms: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """An accepted quote: the only thing that starts a run."""

    quote: Quote
    token: str


class QuoteAuthority:
    """Signs and verifies. One per store: its key lies beside the store, out of reach of what agents run."""

    def __init__(self, key: bytes, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._grants = URLSafeSerializer(key, salt="checkrein.grant", signer_kwargs=_HMAC)
        self._quotes = URLSafeSerializer(key, salt="checkrein.quote", signer_kwargs=_HMAC)

    def sign_preparation(self, preparation: Preparation, *, request_id: str = "", ttl_ms: int = DEFAULT_TTL_MS) -> str:
        """Signs a grant. `request_id` is its one-time id, a fresh one when empty; `ttl_ms` its lifetime in milliseconds."""
        expires = self._clock.now() + timedelta(milliseconds=ttl_ms)
        body = {
            "preparation": asdict(preparation),
            "request_id": request_id or fresh_id(),
            "expires_ms": int(expires.timestamp() * 1000),
        }
        return str(self._grants.dumps(body))

    def verify(self, token: str, value: AgentInput) -> Grant:
        """Reads a grant and holds it against the input.

        Raises:
            GrantTamperedError: Not signed here.
            GrantExpiredError: Its lifetime is over.
            InputMismatchError: Signed for another input or another thread.
        """
        try:
            grant = Grant.from_body(self._grants.loads(token))
        except (BadData, KeyError, TypeError, ValueError) as error:
            raise GrantTamperedError("grant") from error
        self._check_expiry(grant)
        thread = grant.preparation.checkpoint_thread_id
        if thread != value.checkpoint_thread_id or grant.preparation.gateway_input_digest != value.digest():
            raise InputMismatchError(value.checkpoint_thread_id)
        return grant

    def accept(self, quote: Quote) -> Admission:
        """Accepts a quote on the caller's behalf."""
        return Admission(quote=quote, token=str(self._quotes.dumps(_quoted(quote))))

    def check(self, admission: Admission) -> Grant:
        """Verifies an admission at the moment of the start.

        Raises:
            GrantTamperedError: The quote was changed after it was accepted.
            GrantExpiredError: Its lifetime is over by now.
            InputMismatchError: The input was exchanged.
        """
        try:
            signed = self._quotes.loads(admission.token)
        except BadData as error:
            raise GrantTamperedError("admission") from error
        quote = admission.quote
        if signed != _quoted(quote):
            raise GrantTamperedError("admission")
        self._check_expiry(quote.grant)
        if quote.grant.preparation.gateway_input_digest != quote.input.digest():
            raise InputMismatchError(quote.input.checkpoint_thread_id)
        return quote.grant

    def _check_expiry(self, grant: Grant) -> None:
        if self._clock.now() >= grant.expires_at:
            raise GrantExpiredError(grant.expires_at)


_HMAC = {"key_derivation": "hmac", "digest_method": hashlib.sha256}


def _quoted(quote: Quote) -> dict[str, Any]:
    preparation = asdict(quote.grant.preparation)
    return {
        "quote_id": quote.quote_id,
        "request_id": quote.grant.request_id,
        "expires_ms": int(quote.grant.expires_at.timestamp() * 1000),
        "model": quote.model,
        "terms": dict(quote.terms),
        "preparation": preparation | {"roles": list(preparation["roles"])},
    }
