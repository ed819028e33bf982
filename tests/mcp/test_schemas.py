"""Names and schemas of a stranger, made fit for use."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nodes.calls import digest
from nodes.mcp.errors import SchemaRefusedError
from nodes.mcp.naming import MAX_NAME, tool_name
from nodes.mcp.schemas import arguments_model
from tests.mcp.hostile import SCHEMAS

BY_NAME = {tool["name"]: tool["inputSchema"] for tool in SCHEMAS}


def test_a_fit_name_stays_as_it_is() -> None:
    assert tool_name("issues", "search_all") == "mcp__issues__search_all"


@given(st.text(max_size=100), st.text(max_size=100))
def test_any_two_names_stay_two_and_fit_every_model(first: str, second: str) -> None:
    one, other = tool_name("s", first), tool_name("s", second)
    assert re.fullmatch(rf"mcp__s__[A-Za-z0-9_-]{{0,{MAX_NAME}}}", one)
    assert len(one) <= MAX_NAME
    assert (one == other) == (first == second)


@pytest.mark.parametrize("name", ["remote", "text", "nonsense", "large"])
def test_a_schema_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(SchemaRefusedError):
        arguments_model("t", BY_NAME[name])


@pytest.mark.parametrize("name", ["bomb", "circle"])
def test_a_schema_made_to_explode_costs_a_refusal_of_the_call(name: str) -> None:
    model = arguments_model("t", BY_NAME[name])
    begun = time.process_time()
    with pytest.raises(ValidationError, match="too much to check"):
        model.model_validate({"x": "a text"})
    assert time.process_time() - begun < 10


def test_a_pattern_made_to_explode_takes_no_time() -> None:
    model = arguments_model("t", BY_NAME["pattern"])
    begun = time.process_time()
    with pytest.raises(ValidationError, match="does not match"):
        model.model_validate({"x": "a" * 50_000 + "b"})
    assert time.process_time() - begun < 5


def model(**properties: Any) -> Any:
    return arguments_model("t", {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": False})


def test_arguments_are_held_against_the_schema() -> None:
    """S37: what does not fit is told to the model and runs nothing."""
    kind = model(a={"type": "integer", "minimum": 1}, b={"type": "array", "items": {"type": "string"}})
    assert kind.model_validate({"a": 2, "b": ["x"]}).model_dump(mode="json") == {"a": 2, "b": ["x"]}
    for bad in ({}, {"a": 0}, {"a": "1"}, {"a": 1, "b": [1]}, {"a": 1, "c": 1}):
        with pytest.raises(ValidationError):
            kind.model_validate(bad)


def test_further_arguments_pass_where_the_schema_lets_them() -> None:
    kind = arguments_model("t", {"type": "object"})
    odd = {"anything": [1], "model_dump": 1, "__class__": 2, "self": 3, "model_config": 4}
    assert kind.model_validate(odd).model_dump(mode="json") == odd


def test_arguments_come_through_a_second_check_unchanged() -> None:
    """S09: the digest of what was approved is the digest of what runs."""
    kind = model(a={"type": "number"}, b={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None})
    once = kind.model_validate({"a": 1.5})
    again = kind.model_validate(once.model_dump(mode="json"))
    assert digest("t", once) == digest("t", again)
    assert once.model_dump() == {"a": 1.5, "b": None}


def test_a_default_that_does_not_fit_is_left_out() -> None:
    assert model(a={}, b={"type": "string", "default": 3}).model_validate({"a": 1}).model_dump() == {"a": 1}


def test_a_shared_default_is_not_shared_between_calls() -> None:
    kind = model(a={}, b={"type": "array", "default": []})
    kind.model_validate({"a": 1}).model_dump()["b"].append(1)
    assert kind.model_validate({"a": 1}).model_dump()["b"] == []


def test_numbers_that_cannot_be_passed_on_are_refused() -> None:
    with pytest.raises(ValidationError, match="not JSON that can be passed on"):
        model(a={"type": "integer"}).model_validate({"a": 10**30})


def test_pattern_properties_are_matched_without_a_backtracking_engine() -> None:
    kind = arguments_model(
        "t",
        {"patternProperties": {"^n_": {"type": "integer"}, "(?=x)look": {}}, "additionalProperties": {"type": "string"}},
    )
    assert kind.model_validate({"n_a": 1, "b": "x"})
    with pytest.raises(ValidationError):
        kind.model_validate({"n_a": "x"})
    assert kind.model_validate({"b": 1})  # a pattern that RE2 has no form for: the server decides


def test_the_schema_that_the_model_sees_is_the_servers() -> None:
    kind = arguments_model("t", {"type": "object", "properties": {"a": {"description": "what"}}})
    assert kind.model_json_schema() == {"type": "object", "properties": {"a": {"description": "what"}}}
