"""Specs of tools as files hold them: hypothesis strategies for every format, with the odd things of real toolboxes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.traces import json_values

_characters = st.characters(exclude_categories=("Cs",))
words = st.text(_characters, max_size=8)
names = st.text(_characters, min_size=1, max_size=12).filter(lambda text: bool(text.strip()))
_values = json_values.filter(lambda value: "\\ud83d" not in repr(value))
_types = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])


def _some_of(parts: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the keys, in any order: the order is data too."""
    counts = st.integers(0, most)
    chosen = st.permutations(sorted(parts)).flatmap(lambda order: counts.map(lambda count: order[:count]))
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: parts[key] for key in keys}))


_leaves = _some_of(
    {
        "type": st.one_of(_types, st.lists(_types, min_size=1, max_size=3, unique=True)),
        "description": words,
        "enum": st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(0, 2), words), max_size=3),
        "default": _values,
        "minimum": st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
        "required": st.booleans(),
        "$ref": st.just("#/$defs/x"),
    },
    most=4,
)


def _object_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(st.one_of(names, st.just("required")), inner, max_size=3)
    parts = {
        "properties": st.one_of(st.none(), properties),
        "required": st.one_of(st.booleans(), st.lists(st.sampled_from(["a", "required", "b"]), max_size=2)),
        "items": inner,
        "anyOf": st.lists(inner, max_size=2),
        "not": inner,
        "additionalProperties": st.one_of(st.booleans(), inner),
        "$defs": st.dictionaries(names, inner, max_size=1),
        "description": words,
    }
    return _some_of(parts, most=4)


json_schemas: st.SearchStrategy[dict[str, Any]] = _object_of(st.recursive(_leaves, _object_of, max_leaves=5))


@st.composite
def _items(draw: st.DrawFn, *schema_keys: str) -> dict[str, Any]:
    optional = {
        "description": st.one_of(st.none(), words),
        draw(st.sampled_from(schema_keys)): st.one_of(st.none(), json_schemas),
        "label": _values,
        "type": words,
        "required": st.lists(words, max_size=2),
    }
    item = {"name": draw(names), **draw(_some_of(optional, most=len(optional)))}
    return {key: item[key] for key in draw(st.permutations(list(item)))}


@st.composite
def _json_schema_items(draw: st.DrawFn) -> dict[str, Any]:
    item = {key: value for key, value in draw(json_schemas).items() if key != "description"}
    item |= draw(st.fixed_dictionaries({"title": names}, optional={"description": words}))
    return {key: item[key] for key in draw(st.permutations(list(item)))}


_around = st.sampled_from([{}, {"type": "function"}, {"type": "function", "strict": True}])
ITEMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "tooluniverse_v0": _items("parameter"),
    "tooluniverse_v1": _items("parameter"),
    "openai": st.builds(lambda function, around: {"function": function, **around}, _items("parameters"), _around),
    "plain": _items("parameters", "input_schema", "inputSchema"),
    "biotool": st.builds(
        lambda document, value: {"document": document, "params": value}, _items("parameters"), _values
    ),
    "json_schema": _json_schema_items(),
}
"""Items by the format that reads them."""

V0_ITEM: dict[str, Any] = {
    "name": "get_dose",
    "description": "The usual dose of a drug.",
    "label": ["Drug"],
    "parameter": {
        "type": "object",
        "properties": {
            "drug": {"type": "string", "description": "A name.", "required": True},
            "limit": {"type": "integer", "description": "How many.", "required": False},
        },
    },
}
"""An ordinary spec of ToolUniverse before 1.0."""


def plain(name: str, **properties: Any) -> dict[str, Any]:
    """A plain spec; each property is given by its schema."""
    parameters = {"type": "object", "properties": properties}
    return {"name": name, "description": f"What {name} does.", "parameters": parameters}
