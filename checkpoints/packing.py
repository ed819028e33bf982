"""How a row's body looks: msgpack, squeezed with a dictionary, sealed to the place it belongs to.

The seal is eight bytes of a keyed BLAKE2b over where the row is (kind, thread, namespace, checkpoint) and its bytes, with
a key that every store draws for itself. So a flipped byte, a row moved from another thread and a row brought from another
store are told before anything is decoded. It is no defence against somebody who can read the key; against those, types
that are not on the allow-list are refused and nothing is imported.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
import zlib
from typing import Any

import ormsgpack

from checkpoints.store_errors import IntegrityError

SEAL = 8
LEVEL = 6

# What most rows repeat, most frequent last (deflate codes near matches shorter). Part of the format: never change it,
# add another one under a new first byte.
DICTIONARY = (
    b"langchain_core.messages.tool ToolMessage langchain_core.messages.human HumanMessage langchain_core.messages.system "
    b"SystemMessage langchain_core.messages.ai AIMessage langchain_core.messages.modifier RemoveMessage model_validate_json "
    b"langgraph.types Command Interrupt Send Overwrite "
    b"action_requests review_configs allowed_decisions approve edit reject respond description action_name "
    b"\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xc0\xa2id"
    b"\xactool_call_id\xa8artifact\xc0\xa6status\xa7success\xa5error"
    b"\xa7content\xa0\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id"
    b"\xaatool_calls\x91\x84\xa4name\xa4args\x81\xa7command\xa2id\xa4type\xa9tool_call\xb2invalid_tool_calls\x90"
    b"\xaeusage_metadata\x83\xacinput_tokens\xadoutput_tokens\xactotal_tokens finish_reason tool_calls stop model_name "
    b"__pregel_push __pregel_pull __error__ __interrupt__ __resume__ __no_writes__ __pregel_tasks __start__ __input__ "
    b"branch:to:prepare branch:to:model branch:to:approval branch:to:tool branch:to:spawn branch:to:watch branch:to:reap "
    b"messages prepare model approval tool spawn watch reap "
    b"\xa6source\xa4loop\xa4step\xa7parents\x80\xbdcounters_since_delta_snapshot\x81\xa8messages\x92 "
    b"run_id thread_id checkpoint_ns user_id \xa7msgpack"
)


class Sealer:
    """Packs and unpacks bodies of one store.

    Args:
        key: The store's own key, 16 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def pack(self, value: Any, *place: str | bytes) -> bytes:
        """A body for the place."""
        raw = ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)
        squeezer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
        squeezed = squeezer.compress(raw) + squeezer.flush()
        body = b"\x01" + squeezed if len(squeezed) < len(raw) else b"\x00" + raw
        return self.close(body, place)

    def unpack(self, sealed: bytes, kind: str, thread_id: str, *place: str | bytes) -> Any:
        """The value of a body that belongs to the place.

        Raises:
            IntegrityError: It does not, or was changed.
        """
        body = self.open(sealed, (kind, thread_id, *place))
        try:
            raw = body[1:] if body[:1] == b"\x00" else _grow(body[1:])
            return ormsgpack.unpackb(raw, option=ormsgpack.OPT_NON_STR_KEYS)
        except (zlib.error, ValueError) as error:
            raise IntegrityError(kind, thread_id, f"it cannot be decoded ({error})") from error

    def open(self, sealed: bytes, place: tuple[str | bytes, ...]) -> bytes:
        """The body without its seal, not decoded.

        Raises:
            IntegrityError: It does not belong to the place.
        """
        body = sealed[SEAL:]
        if not hmac.compare_digest(sealed[:SEAL], self._seal(body, place)):
            raise IntegrityError(str(place[0]), str(place[1]), "its seal does not fit its content and place")
        return body

    def close(self, body: bytes, place: tuple[str | bytes, ...]) -> bytes:
        """A body as `open` gives it, sealed for a place."""
        return self._seal(body, place) + body

    def _seal(self, body: bytes, place: tuple[str | bytes, ...]) -> bytes:
        digest = hashlib.blake2b(digest_size=SEAL, key=self._key)
        for part in place:
            data = part.encode() if isinstance(part, str) else part
            digest.update(b"%d:" % len(data))
            digest.update(data)
        digest.update(body)
        return digest.digest()


def _grow(squeezed: bytes) -> bytes:
    grower = zlib.decompressobj(-15, DICTIONARY)
    return grower.decompress(squeezed) + grower.flush()


def short_id(text: str) -> bytes:
    """An id as bytes: 16 for a UUID in its usual form, else the text behind a mark, never 16 long."""
    if len(text) == 36:
        try:
            parsed = uuid.UUID(text)
        except ValueError:
            parsed = None
        if parsed is not None and str(parsed) == text:
            return parsed.bytes
    data = b"~" + text.encode()
    return data + b"\x00" if len(data) == 16 else data


def long_id(data: bytes) -> str:
    """The other way round."""
    if len(data) == 16:
        return str(uuid.UUID(bytes=data))
    text = data[1:-1] if len(data) == 17 and data.endswith(b"\x00") else data[1:]
    return text.decode()
