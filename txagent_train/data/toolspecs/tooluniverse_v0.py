"""ToolUniverse before 1.0, and so TxAgent: ``parameter``, whose properties say each for itself whether it is required.

    {"name": ..., "description": ..., "parameter": {"type": "object", "properties": {"drug": {..., "required": true}}}}

One spec has a list ``required`` beside ``parameter``, and one has ``properties`` null.
"""

from __future__ import annotations

from typing import Any

from txagent_train.core.records import JsonObject
from txagent_train.data.schemas import SUBSCHEMAS
from txagent_train.data.toolspecs.placed import PlacedFormat


def merged_required(parameters: Any, item: JsonObject) -> Any:
    """The parameters with a list ``required`` that stands beside them in the spec."""
    beside = item.get("required")
    if isinstance(beside, list) and isinstance(parameters, dict) and "required" not in parameters:
        return {**parameters, "required": beside}
    return parameters


def with_required_marks(schema: Any) -> Any:
    """The inverse of schemas.with_required_lists: a mark in each property, and no list where the marks say the same."""
    if isinstance(schema, list):
        return [with_required_marks(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: with_required_marks(value) if key in SUBSCHEMAS else value for key, value in schema.items()}
    properties, listed = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(listed, list):
        return out
    out["properties"] = {name: _marked(item, name in listed) for name, item in properties.items()}
    marked = [name for name, item in out["properties"].items() if isinstance(item, dict) and item["required"] is True]
    if listed and listed == marked:
        del out["required"]
    return out


def _marked(item: Any, required: bool) -> Any:
    inner = with_required_marks(item)
    # A list that the marks inside cannot say has the place of the mark.
    return {**inner, "required": required} if isinstance(inner, dict) and "required" not in inner else inner


FORMAT = PlacedFormat(
    name="tooluniverse_v0",
    places=(("name",), ("description",), (("parameter",),)),
    around={"name": None, "description": None, "parameter": None},
    as_written=with_required_marks,
    merged=merged_required,
)
