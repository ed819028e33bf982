"""The events that a model reply emits, in one place. Payloads are JSON; nothing in them is a key.

    model_started    attempt, model: an attempt begins.
    token            text: a piece of the answer, whole characters, in order. The first one commits the attempt.
    reasoning        text: a piece of the model's thinking, where a provider shows it. Not part of the answer.
    stream_reset     attempt, model, cause: the attempt failed and another follows. Whatever a consumer holds of it is void.
                     Never sent after a token.
    model_waiting    model, seconds, cause: the time until the next attempt at the same model.
    model_attempt    an attempt ended; the fields of `Attempt.record()`. Exactly one for each attempt.

One reply is: for each attempt `model_started`, then deltas, then `model_attempt`; between two attempts one `stream_reset` and
perhaps one `model_waiting`. A consumer that only shows text needs `token` and `stream_reset`.
"""

from __future__ import annotations

from typing import Final

MODEL_STARTED: Final = "model_started"
TOKEN: Final = "token"  # noqa: S105  (a piece of text, not a secret)
REASONING: Final = "reasoning"
STREAM_RESET: Final = "stream_reset"
MODEL_WAITING: Final = "model_waiting"
MODEL_ATTEMPT: Final = "model_attempt"
