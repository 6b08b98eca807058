from __future__ import annotations

import json
from typing import Any

import pytest

from txagent_train.data.references import references_of
from txagent_train.data.schemas import schema_validator

TREE = {
    "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}},
    "properties": {"a": {"$ref": "#/$defs/node"}},
}
LOOP = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}


@pytest.mark.parametrize(
    ("schema", "unresolved", "circular", "recursive"),
    [
        ({}, [], [], []),
        (True, [], [], []),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}}, [], [], []),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, ["#/$defs/no"], [], []),
        ({"properties": {"a": {"$ref": "https://example.org/s.json"}}}, ["https://example.org/s.json"], [], []),
        ({"properties": {"a": {"$ref": 5}}}, ["5"], [], []),
        ({"$ref": "#"}, [], ["#"], []),
        ({"allOf": [{"$ref": "#"}]}, [], ["#"], []),
        ({"properties": {"a": {"$ref": "#"}}}, [], [], ["#"]),
        (LOOP, [], ["#/$defs/a", "#/$defs/b"], []),
        (TREE, [], [], ["#/$defs/node"]),
        ({"properties": {"a": {"$anchor": "it"}, "b": {"$ref": "#it"}}}, [], [], []),
        ({"properties": {"a/b": {}, "c": {"$ref": "#/properties/a~1b"}}}, [], [], []),
        ({"properties": {"a": {"default": {"$ref": "#/no"}, "enum": [{"$ref": "#/no"}]}}}, [], [], []),
        ({"x": {"y": {"$ref": "#/x/y"}}, "properties": {"a": {"$ref": "#/x/y"}}}, [], ["#/x/y"], []),
    ],
)
def test_references(schema: Any, unresolved: list[str], circular: list[str], recursive: list[str]) -> None:
    found = references_of(schema)
    assert (sorted(found.unresolved), sorted(found.circular), sorted(found.recursive)) == (
        unresolved,
        circular,
        recursive,
    )


def test_a_validator_is_refused_where_its_checks_would_not_end() -> None:
    with pytest.raises(ValueError, match="leads back to itself"):
        schema_validator(json.dumps(LOOP))
    tree = schema_validator(json.dumps(TREE | {"properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"]}))
    assert tree.is_valid({"a": {"next": {"next": {}}}}) and not tree.is_valid({})


def test_a_long_chain_of_references_is_followed() -> None:
    chain = {"$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(300)} | {"300": {}}}
    assert references_of(chain).circular == [] and references_of(chain).unresolved == []
