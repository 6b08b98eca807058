from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


NAMES = "abcd"


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[tuple[str, str]]]:
    """For each definition the others that it refers to, and whether at the same value or inside it."""
    edge = st.tuples(st.sampled_from(["allOf", "properties"]), st.sampled_from(NAMES))
    return {name: draw(st.lists(edge, max_size=3)) for name in NAMES}


def reaches(graph: dict[str, list[tuple[str, str]]], start: str, goal: str, keys: tuple[str, ...]) -> bool:
    seen: set[str] = set()
    stack = [start]
    while stack:
        name = stack.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            stack += [to for key, to in graph[name] if key in keys]
    return False


@given(graphs())
def test_circles_are_those_that_a_walk_from_each_reference_finds(graph: dict[str, list[tuple[str, str]]]) -> None:
    schema = {
        "$defs": {
            name: {
                "allOf": [{"$ref": f"#/$defs/{to}"} for key, to in edges if key == "allOf"],
                "properties": {
                    str(n): {"$ref": f"#/$defs/{to}"} for n, (key, to) in enumerate(edges) if key != "allOf"
                },
            }
            for name, edges in graph.items()
        }
    }
    circular, recursive = [], []
    for name, edges in graph.items():
        for key, to in edges:
            if key == "allOf" and reaches(graph, to, name, ("allOf",)):
                circular.append(f"#/$defs/{to}")
            elif reaches(graph, to, name, ("allOf", "properties")):
                recursive.append(f"#/$defs/{to}")
    found = references_of(schema)
    assert (sorted(found.circular), sorted(found.recursive)) == (sorted(circular), sorted(recursive))


def test_the_time_grows_with_the_size() -> None:
    count = 4000
    definitions = {str(n): {"properties": {"x": {"$ref": f"#/$defs/{(n + 1) % count}"}}} for n in range(count)}
    start = time.process_time()
    assert len(references_of({"$defs": definitions, "$ref": "#/$defs/0"}).recursive) == count
    assert time.process_time() - start < 5
