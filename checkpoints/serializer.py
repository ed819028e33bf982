"""LangGraph's serializer without its soft spots: nothing that is not allowed is loaded, nothing half-loaded is passed on.

The stock serializer gives back a bare dict for a type that is blocked, moved or broken, and the run goes on with it; it
also writes the value of a secret wrapper in plain text. Here the first raises when loading, the second when saving.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

from checkpoints.errors import CheckreinError, UsageError

SECRET_MARKS = (b"pydantic.types\xa9SecretStr", b"pydantic.types\xabSecretBytes", b"pydantic.types\xa6Secret")
"""How a secret wrapper's name looks after its module in msgpack. A text cannot contain the length byte between them."""


class SecretInStateError(UsageError):
    """A node tried to save a secret in the state, where it would be plain text."""

    code = "secret_in_state"
    hint = "Keep secrets in the run's context and put a reference in the state."

    def __init__(self) -> None:
        super().__init__("The state to save holds a secret (a pydantic secret type).")


class TypeRefusedError(CheckreinError):
    """A stored value names a type that may not be loaded, or that this program no longer has.

    Attributes:
        type_name: Module and name, as stored.
        missing: True when the type is allowed and cannot be made, False when it is not allowed.
    """

    code = "type_refused"
    hint = "Use the program version that wrote it, or add the type to the allow-list if it is yours."

    def __init__(self, type_name: str, *, missing: bool) -> None:
        self.type_name = type_name
        self.missing = missing
        why = "it cannot be made by this version" if missing else "it is not on the allow-list"
        super().__init__(f"A stored value of type {type_name} was not loaded: {why}.")


class StrictSerializer(jsonplus.JsonPlusSerializer):
    """Msgpack with an allow-list: LangGraph's own safe types and those given.

    Args:
        allowed: Further types as (module, name). LangGraph adds the types of a graph's state when it compiles in strict mode.
    """

    def __init__(self, allowed: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(allowed_msgpack_modules=tuple(allowed) or None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encodes a value.

        Raises:
            SecretInStateError: It holds a secret wrapper, at any depth.
            TypeError: It holds something that cannot be stored.
        """
        kind, data = super().dumps_typed(obj)
        if b"pydantic.types" in data and any(mark in data for mark in SECRET_MARKS):
            raise SecretInStateError
        return kind, data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decodes a value.

        Raises:
            TypeRefusedError: It names a type that is not allowed (nothing was imported) or cannot be made.
        """
        kind, body = data
        if kind == "msgpack":
            known = self._allowed_msgpack_modules
            return _Reader(known if isinstance(known, set) else set()).read(body)
        if kind in {"null", "bytes", "bytearray"}:
            return super().loads_typed(data)
        raise TypeRefusedError(f"<{kind}>", missing=False)


class _Reader:
    """Decodes one value. Keeps its refusal aside, since the decoder replaces what a hook raises by an error of its own."""

    def __init__(self, allowed: set[tuple[str, ...]]) -> None:
        self._allowed = allowed
        self._refusal: TypeRefusedError | None = None

    def read(self, body: bytes) -> Any:
        try:
            return self._unpack(body)
        except ValueError as error:
            if self._refusal is not None:
                raise self._refusal from error
            raise

    def _unpack(self, body: bytes) -> Any:
        return ormsgpack.unpackb(body, ext_hook=self._revive, option=ormsgpack.OPT_NON_STR_KEYS)

    def _revive(self, code: int, body: bytes) -> Any:
        value = self._unpack(body)
        if code == jsonplus.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(value)
        if code not in _MAKERS:
            raise self._refused(f"<extension {code}>", missing=False)
        module, name, payload = value[0], value[1], value[2]
        if not self._is_allowed(code, *value):
            raise self._refused(f"{module}.{name}", missing=False)
        if (module, name) == ("langgraph.types", "Send"):
            return Send(payload[0], payload[1], timeout=payload[2] if len(payload) > 2 else None)
        try:
            return _MAKERS[code](getattr(importlib.import_module(module), name), value)
        except Exception as error:
            raise self._refused(f"{module}.{name}", missing=True) from error

    def _is_allowed(self, code: int, module: str, name: str, _payload: Any, method: str = "") -> bool:
        if code == jsonplus.EXT_METHOD_SINGLE_ARG:
            return (module, name, method) in SAFE_MSGPACK_METHODS
        return (module, name) in SAFE_MSGPACK_TYPES or (module, name) in self._allowed

    def _refused(self, type_name: str, *, missing: bool) -> TypeRefusedError:
        self._refusal = TypeRefusedError(type_name, missing=missing)
        return self._refusal


_MAKERS = {
    jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG: lambda cls, value: cls(value[2]),
    jsonplus.EXT_CONSTRUCTOR_POS_ARGS: lambda cls, value: cls(*value[2]),
    jsonplus.EXT_CONSTRUCTOR_KW_ARGS: lambda cls, value: cls(**value[2]),
    jsonplus.EXT_METHOD_SINGLE_ARG: lambda cls, value: getattr(cls, value[3])(value[2]),
    jsonplus.EXT_PYDANTIC_V2: lambda cls, value: cls(**value[2]),
}
