from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.spec_items import plain
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolcheck import MEANINGS, check_toolbox
from txagent_train.data.toolspecs import FORMATS
from txagent_train.data.toolstats import toolbox_stats

TEXT = {"type": "string", "description": "A text."}


def _kinds(spec: ToolSpec) -> list[tuple[str, str]]:
    return [(finding.kind, finding.detail) for finding in check_toolbox(Toolbox((spec,))).findings]


def _spec(name: str = "get_dose", description: str = "The dose.", **schema: Any) -> ToolSpec:
    return ToolSpec(name, description, {"type": "object", "properties": {"drug": TEXT}, **schema})


@pytest.mark.parametrize(
    ("spec", "kind", "detail"),
    [
        (_spec(name="x" * 65), "name_too_long", "65 characters"),
        (_spec(name="naïve"), "name_not_ascii", ""),
        (_spec(name="get-dose"), "name_not_identifier", ""),
        (_spec(description=" \n"), "empty_description", ""),
        (_spec(properties={"drug": {"type": "string"}}), "property_without_description", "drug"),
        (_spec(properties={"drug": {**TEXT, "description": " "}}), "property_without_description", "drug"),
        (
            _spec(properties={"many": {**TEXT, "type": "array", "items": {"properties": {"a": True}}}}),
            "property_without_description",
            "many[].a",
        ),
        (_spec(required=["drug", "dose"]), "unknown_required", "dose"),
        (_spec(type="array"), "not_an_object", 'type is "array"'),
        (_spec(anyOf=[{"$ref": "#"}]), "circular_ref", "#"),
        (_spec(properties={"drug": {"$ref": "#", "description": "x"}}), "recursive_ref", "#"),
        (_spec(properties={"drug": {"$ref": "#/$defs/x", "description": "x"}}), "unresolved_ref", "#/$defs/x"),
    ],
)
def test_each_finding(spec: ToolSpec, kind: str, detail: str) -> None:
    assert kind in MEANINGS and _kinds(spec) == [(kind, detail)]


def test_a_sound_tool_has_none() -> None:
    assert _kinds(_spec(required=["drug"], additionalProperties=False)) == []
    assert _kinds(_spec(name="x" * 64)) == []
    assert _kinds(_spec(oneOf=[{"required": ["drug"]}, {"properties": {"drug": {"type": "null"}}}])) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt", "properties": {}},
        {"type": "object", "properties": {"drug": {**TEXT, "type": "str"}}},
        {"type": "object", "properties": 5},
        {"type": "object", "properties": {"drug": {**TEXT, "pattern": "("}}},
        {"type": "object", "properties": {}, "required": "drug"},
    ],
)
def test_a_schema_that_is_none(schema: JsonObject) -> None:
    found = _kinds(ToolSpec("get_dose", "The dose.", schema))
    assert [kind for kind, _ in found] == ["invalid_schema"] and found[0][1]


def test_the_examples_of_a_spec_are_checked() -> None:
    item = {
        "name": "get_dose",
        "description": "The dose.",
        "parameter": {"type": "object", "properties": {"drug": TEXT}, "required": ["drug"]},
        "test_examples": [{"drug": "ibuprofen"}, {"drug": 5}, {}],
    }
    found = _kinds(FORMATS["tooluniverse_v1"].read(item))
    assert [kind for kind, _ in found] == ["example_breaks_schema"] * 2
    assert found[0][1].startswith("example 2: 5 is not of type")


def test_real_toolboxes(shared_data: Callable[[str], Path]) -> None:
    old = check_toolbox(Toolbox.read(shared_data("tooluniverse_v0/tools.json")))
    assert old.counts == {"name_too_long": 9, "no_parameters": 1}
    new = check_toolbox(Toolbox.read(shared_data("tooluniverse_v1/specs.json")))
    assert new.counts["no_parameters"] == 3 and "invalid_schema" not in new.counts
    assert new.to_json()["tools"] == 60


def test_stats(shared_data: Callable[[str], Path]) -> None:
    found = toolbox_stats(Toolbox.read(shared_data("tooluniverse_v0/tools.json")), count_tokens=lambda text: 7)
    assert (found["tools"], found["names_over_64"], found["name_characters"]["max"]) == (214, 9, 103)
    assert found["argument_types"] == {"integer": 331, "string": 212, "array": 7, "object": 4, "number": 3}
    assert found["formats"] == {"tooluniverse_v0": 214}
    assert found["spec_tokens"] == {"total": 7 * 214, "mean": 7.0, "median": 7, "max": 7}
    odd = plain("f", a={"type": ["string", "null"]}, b={"oneOf": []}, c=True, d={"$ref": "#/$defs/x"})
    types = toolbox_stats(Toolbox((FORMATS["plain"].read(odd),)))["argument_types"]
    assert types == {"string | null": 1, "oneOf": 1, "any": 1, "$ref": 1}
