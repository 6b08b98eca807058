"""Parameter schemas as tools bring them, made the JSON schemas that they mean, and their validators."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry

from txagent_train.data.references import references_of


def with_required_lists(schema: Any) -> Any:
    """The schema with ``required: true`` inside a property written as the list that JSON schema has for it.

    Some toolboxes (ToolUniverse before 1.0, and so TxAgent) mark each property, and write ``properties: null`` for
    none. A ``required`` that is no list is never valid, so a sound schema comes back as it is.
    """
    if isinstance(schema, list):
        return [_nested(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _nested(value) if key in SUBSCHEMAS else value for key, value in schema.items()}
    if "properties" in schema and schema["properties"] is None:
        out["properties"] = {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return out
    marks = {name: str(item["required"]).lower() == "true" for name, item in properties.items() if _has_mark(item)}
    out["properties"] = {name: _nested(item) for name, item in properties.items()}
    listed = schema.get("required", [])
    if isinstance(listed, list):
        wanted = [*listed, *(name for name, mark in marks.items() if mark and name not in listed)]
        if wanted != listed:
            out["required"] = wanted
    return out


SUBSCHEMAS = ("items", "anyOf", "oneOf", "allOf", "additionalProperties")
"""Keys that hold a schema or a list of them; what stands elsewhere (``default``, ``enum``) is data."""


def _has_mark(item: Any) -> bool:
    # As text too: the toolbox has "True" in one place.
    return isinstance(item, dict) and str(item.get("required")).lower() in ("true", "false")


def _nested(item: Any) -> Any:
    unmarked = {key: value for key, value in item.items() if key != "required"} if _has_mark(item) else item
    return with_required_lists(unmarked)


@lru_cache(maxsize=4096)
def schema_validator(schema: str) -> Draft202012Validator:
    """The validator of a JSON schema (2020-12), given as JSON text: records repeat the same few schemas.

    Raises:
        Exception: whatever jsonschema meets in it; a schema is anybody's text.
    """
    parsed = json.loads(schema)
    Draft202012Validator.check_schema(parsed)
    circular = references_of(parsed).circular
    if circular:
        raise ValueError(f"the $ref {circular[0]} leads back to itself, so that no check against it ends")
    # The empty registry fetches nothing: what a check says must not depend on the network.
    return Draft202012Validator(parsed, registry=Registry())
