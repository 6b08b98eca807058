from __future__ import annotations

from typing import Any

import pytest

from txagent_train.core.records import ToolSpec
from txagent_train.data.rewrites import ArgumentRewrite, ToolRewrite
from txagent_train.toolsmith.samples import SampleCalls

NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}


def broken(parameters: dict[str, Any], shown: dict[str, Any], names: dict[str, str]) -> dict[str, Any] | None:
    rewrite = ToolRewrite("t", 1, "u", "d", {old: ArgumentRewrite(new, "") for old, new in names.items()})
    return SampleCalls(ToolSpec("t", "", parameters)).broken_by(rewrite, ToolSpec("u", "", shown))


@pytest.mark.parametrize(
    "rest",
    [
        {"required": ["a"]},
        {"additionalProperties": False},
        {"allOf": [{"required": ["a"]}]},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"dependentRequired": {"a": ["b"]}},
        {"propertyNames": {"enum": ["a", "b"]}},
        {"patternProperties": {"^[xy]$": {"type": "string"}}},
        {"not": {"required": ["a", "b"]}},
        {"minProperties": 1, "allOf": [{"properties": {"a": {"minimum": 100}}}]},
        {"enum": [{"a": 1}]},
        {"allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"required": ["b"]}}},
    ],
)
def test_a_renaming_that_follows_the_properties_alone_breaks_a_call(rest: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": NUMBERS} | rest
    half = parameters | {"properties": {"x": NUMBERS["a"], "y": NUMBERS["b"]}}
    if "additionalProperties" in rest:
        half["properties"] = NUMBERS  # not renamed at all
    assert broken(parameters, half, {"a": "x", "b": "y"}) is not None
    assert broken(parameters, parameters, {"a": "a", "b": "b"}) is None


def test_a_type_that_changed_is_found() -> None:
    parameters = {"type": "object", "properties": NUMBERS}
    assert broken(parameters, {"type": "object", "properties": NUMBERS | {"a": {"type": "string"}}}, {}) is not None


def test_a_schema_that_nothing_can_be_checked_against_breaks_nothing() -> None:
    assert broken({"properties": {"a": {"type": "strang"}}}, {"properties": {"x": {}}}, {"a": "x"}) is None
    loop = {"properties": {"a": {}}, "allOf": [{"$ref": "#"}]}
    assert broken(loop, loop, {}) is None
