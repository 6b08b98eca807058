from __future__ import annotations

import json
from typing import Any

import pytest

from txagent_train.data.schema_names import ArgumentNames, rename_properties

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "rest",
    [
        {"allOf": [{"$ref": "#/$defs/base"}], "$defs": {"base": {"required": ["a"]}}},
        {"$ref": "#/$defs/base", "$defs": {"base": {"required": ["a"]}}},
        {"propertyNames": {"enum": ["a", "b"]}},
        {"propertyNames": {"pattern": "^[a-z]$"}},
        {"patternProperties": {"^x": {"type": "integer"}}},
        {"anyOf": [{"patternProperties": {"^x": {"type": "integer"}}}]},
        {"properties": {"a": TEXT, "b": {"$ref": "#"}}},
        {"properties": {"a a": TEXT, "b": {"$ref": "#/properties/a%20a"}}},
        {"properties": {"a": TEXT, "b": {"$ref": "#/allOf/0/properties/a"}}, "allOf": [{"properties": {"a": TEXT}}]},
        {"properties": {"a": TEXT, "b": {"$ref": "#it"}}, "$anchor": "it"},
        {"properties": {"a": TEXT, "b": {"$ref": "other.json"}}},
        {"properties": {"a": TEXT, "b": {"$id": "x", "properties": {"c": {"$ref": "#/properties/a"}}}}},
        {"dependencies": {"a": ["b"]}},
        {"propertyOrdering": ["b", "a"]},
        {"x": {"y": {"$ref": "#/properties/a"}}, "$defs": {"d": {"$ref": "#/$defs/e/x"}, "e": {"x": {"$ref": "#"}}}},
    ],
)
def test_names_stay_where_the_schema_binds_them_unseen(rest: dict[str, Any]) -> None:
    names = ArgumentNames.of({"type": "object", "properties": {"a": TEXT, "b": TEXT}} | rest)
    assert names.fixed


@pytest.mark.parametrize(
    "rest",
    [
        {},
        {"allOf": [{"required": ["a"]}], "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
        {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"required": ["b"]}}},
        {"properties": {"a": TEXT, "b": {"$ref": "#/properties/a"}}, "patternProperties": {}},
        {"properties": {"a": {"items": {"$ref": "#/$defs/d"}}}, "$defs": {"d": {"patternProperties": {"x": TEXT}}}},
        {"properties": {"a": {"propertyNames": {"enum": ["a"]}}}, "additionalProperties": False, "title": "a"},
    ],
)
def test_names_may_change_where_every_mention_is_followed(rest: dict[str, Any]) -> None:
    assert not ArgumentNames.of({"type": "object", "properties": {"a": TEXT, "b": TEXT}} | rest).fixed


def test_a_schema_without_properties_binds_nothing() -> None:
    assert ArgumentNames.of({"$ref": "#/$defs/a"}) == ArgumentNames(frozenset(), frozenset(), "")


def test_every_name_that_the_schema_has_is_known() -> None:
    parameters = {
        "properties": {"a": {"properties": {"inner": TEXT}}},
        "required": ["b"],
        "anyOf": [{"properties": {"c": TEXT}}, {"not": {"required": ["d"]}}],
        "dependentRequired": {"e": ["f"]},
        "dependentSchemas": {"g": {"required": ["h"]}},
    }
    assert ArgumentNames.of(parameters).own == {"a"}
    assert ArgumentNames.of(parameters).known == set("abcdefgh")


def test_what_is_data_or_of_another_object_stays() -> None:
    inner = {
        "properties": {"a": TEXT, "$ref": TEXT, "default": {"$ref": "#/properties/a"}},
        "required": ["a"],
        "default": {"a": "#/properties/a"},
    }
    renamed = rename_properties({"properties": {"a": inner}, "required": ["a"]}, {"a": "z"})
    changed = json.loads(json.dumps(inner).replace('"$ref": "#/properties/a"', '"$ref": "#/properties/z"'))
    assert renamed == {"properties": {"z": changed}, "required": ["z"]}
