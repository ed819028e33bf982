"""Secrets in a stream of bytes, however it is cut into pieces (S69)."""

from __future__ import annotations

import random

import pytest

from checkpoints.redaction import MARK, Redactor
from nodes.processes.scrubbing import Secrets

SECRET = "aabaab-secret-é"
TEXT = f"x{SECRET}{SECRET} aab aabaab-secret- {SECRET}"
CLEAN = f"x{MARK}{MARK} aab aabaab-secret- {MARK}"


def scrubbed(secrets: Secrets, pieces: list[bytes]) -> str:
    scrubber = secrets.scrubber()
    return (b"".join(map(scrubber.feed, pieces)) + scrubber.rest()).decode()


def test_a_secret_is_found_wherever_the_stream_is_cut() -> None:
    secrets, data = Secrets(Redactor([SECRET])), TEXT.encode()
    for cut in range(len(data) + 1):
        assert scrubbed(secrets, [data[:cut], data[cut:]]) == CLEAN
    assert scrubbed(secrets, [data[place : place + 1] for place in range(len(data))]) == CLEAN


def test_many_secrets_in_any_pieces() -> None:
    chance = random.Random(11)
    words = ["first-secret", "second-one-aaaa", "aaaaaaaa-third", "first-secret-longer"]
    secrets = Secrets(Redactor(words))
    data = "".join(chance.choice([*words, "a", "first-", "\n"]) for _ in range(2000)).encode()
    pieces, place = [], 0
    while place < len(data):
        size = chance.randrange(1, 40)
        pieces.append(data[place : place + size])
        place += size
    assert not any(word in scrubbed(secrets, pieces) for word in words)


def test_what_cannot_be_the_beginning_of_a_secret_is_not_held_back() -> None:
    scrubber = Secrets(Redactor([SECRET])).scrubber()
    assert scrubber.feed(b"a line\n") == b"a line\n"
    assert scrubber.feed(b"prompt aab") == b"prompt "
    assert scrubber.feed(b"c") == b"aabc"
    assert scrubber.rest() == b""


@pytest.mark.parametrize("redactor", [None, Redactor(), Redactor(["short"])])
def test_without_secrets_every_byte_goes_through_untouched(redactor: Redactor | None) -> None:
    data = bytes(range(256)) * 3
    assert Secrets(redactor).scrubber().feed(data) is data
