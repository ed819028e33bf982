"""From a server's JSON schema to an argument model that holds calls against it.

The schema is a stranger's. Nothing is fetched for it, its patterns run in linear time (RE2), and the work of one check is
counted, so that a schema made to explode costs a refusal and not the event loop. What is left to the server to check, because
it cannot be bounded here: `unevaluatedProperties`, `unevaluatedItems`, and patterns that RE2 has no form for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any, ClassVar

import orjson
import re2  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError, ValidationError  # type: ignore[import-untyped]
from jsonschema.validators import extend  # type: ignore[import-untyped]
from pydantic import ConfigDict, create_model, model_validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from nodes.display import escape_line
from nodes.mcp.errors import SchemaRefusedError
from nodes.tools.tool import Arguments

MAX_SCHEMA = 64 * 1024
"""Bytes of a schema as JSON: every model call carries it."""

MAX_STEPS = 100_000
"""Keywords evaluated in one check at most, about half a second of work."""

_SHOWN_FAULTS = 5
_SHOWN_FAULT = 300

Keyword = Callable[[Any, Any, Any, Mapping[str, Any]], Iterator[ValidationError]]

_steps: ContextVar[list[int]] = ContextVar("_steps")


class TooMuchToCheckError(ValueError):
    """The schema makes this check longer than any honest one."""


class SchemaArguments(Arguments):
    """Arguments that a JSON schema describes. They are kept as they came, with the schema's own defaults filled in."""

    model_config = ConfigDict(extra="allow", frozen=True)

    json_schema: ClassVar[dict[str, Any]] = {}
    defaults: ClassVar[dict[str, Any]] = {}

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, given: Any) -> Any:
        """Holds the arguments against the schema; numbers that JSON cannot carry on are refused too."""
        try:
            data = orjson.loads(orjson.dumps({**copy.deepcopy(cls.defaults), **given}))
        except TypeError as error:
            raise ValueError(f"not JSON that can be passed on: {error}") from error
        faults = [_spelled(fault) for fault in islice(_faults(cls.json_schema, data), _SHOWN_FAULTS)]
        if faults:
            raise ValueError("; ".join(faults))
        return data

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """The server's schema, for the model and for people."""
        return copy.deepcopy(cls.json_schema)


def arguments_model(name: str, schema: Mapping[str, Any]) -> type[SchemaArguments]:
    """The argument model of one tool.

    Args:
        name: What to call the model.
        schema: What the server says; JSON.

    Raises:
        SchemaRefusedError: It is too large, no schema, not about an object, or refers to something outside itself.
    """
    whole = _checked(schema)
    model = create_model(name, __base__=SchemaArguments)
    model.json_schema = whole
    model.defaults = _defaults(whole)
    return model


def _checked(schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        written = orjson.dumps(schema)
        if len(written) > MAX_SCHEMA:
            raise SchemaRefusedError(f"has {len(written)} bytes, more than {MAX_SCHEMA}")
        whole: dict[str, Any] = {"type": "object", "properties": {}, **orjson.loads(written)}
        if whole["type"] != "object":
            raise SchemaRefusedError("is not about an object")
        if any(not isinstance(target, str) or not target.startswith("#") for target in _references(whole)):
            raise SchemaRefusedError("refers to something outside itself")
        Draft202012Validator.check_schema(whole, format_checker=FormatChecker(formats=()))
    except SchemaError as error:
        raise SchemaRefusedError(f"is no JSON schema: {escape_line(error.message[:_SHOWN_FAULT])}") from error
    except (RecursionError, TypeError) as error:
        raise SchemaRefusedError("is nested too deep, or is not JSON") from error
    return whole


def _references(node: Any) -> Iterator[Any]:
    """Every `$ref` in a schema, and what only looks like one: a property of that name holds a schema, which is no text."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("$ref", "$dynamicRef") and not isinstance(value, dict):
                yield value
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the top level, so that what is approved is all that runs; a default that does not fit is left out."""
    properties = schema["properties"]
    said = {name: part["default"] for name, part in properties.items() if isinstance(part, dict) and "default" in part}
    return {name: value for name, value in said.items() if _fits_property(schema, name, value)}


def _fits_property(schema: Mapping[str, Any], name: str, value: Any) -> bool:
    alone = {**schema, "properties": {name: schema["properties"][name]}, "required": []}
    try:
        return not any(_faults(alone, {name: value}))
    except ValueError:
        return False


def _faults(schema: Mapping[str, Any], data: Any) -> Iterator[ValidationError]:
    token = _steps.set([MAX_STEPS])
    try:
        yield from list(islice(_Bounded(schema, registry=Registry()).iter_errors(data), _SHOWN_FAULTS))
    except (RecursionError, TooMuchToCheckError) as error:
        raise ValueError("the schema makes this too much to check") from error
    except Unresolvable as error:
        raise ValueError("the schema refers to a part of itself that is not there") from error
    finally:
        _steps.reset(token)


def _spelled(fault: ValidationError) -> str:
    return f"{fault.json_path}: {fault.message[:_SHOWN_FAULT]}"


def _counted(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        left = _steps.get()
        left[0] -= 1
        if left[0] < 0:
            raise TooMuchToCheckError
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern is found in a text; None when RE2 has no form for it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return bool(re2.search(pattern, text, options=options))
    except re2.error:
        return None


def _pattern(_: Any, pattern: str, instance: Any, __: Mapping[str, Any]) -> Iterator[ValidationError]:
    if isinstance(instance, str) and _matches(pattern, instance) is False:
        yield ValidationError(f"{instance[:100]!r} does not match {pattern[:100]!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, part in patterns.items():
        for name, value in instance.items():
            if _matches(pattern, name):
                yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    further = [name for name in instance if name not in schema.get("properties", {}) and not _spoken_of(name, patterns)]
    if isinstance(rule, dict):
        for name in further:
            yield from validator.descend(instance[name], rule, path=name)
    elif rule is False and further:
        yield ValidationError(f"unknown: {', '.join(map(repr, further[:10]))}")


def _spoken_of(name: str, patterns: Mapping[str, Any]) -> bool:
    """Whether a pattern speaks of a property; one that cannot be told here is left to the server."""
    return any(_matches(pattern, name) is not False for pattern in patterns)


def _left_to_the_server(*_: Any) -> Iterator[ValidationError]:
    return iter(())


_Bounded = extend(
    Draft202012Validator,
    {
        keyword: _counted(check)
        for keyword, check in {
            **Draft202012Validator.VALIDATORS,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "unevaluatedProperties": _left_to_the_server,
            "unevaluatedItems": _left_to_the_server,
        }.items()
    },
)
