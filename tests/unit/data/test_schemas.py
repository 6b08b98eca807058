from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from jsonschema import Draft202012Validator

from tests.support.openai_records import TOOLS
from txagent_train.data.schemas import with_required_lists


def test_marks_become_lists_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "string", "required": True}}, "required": False}
    schema = {
        "type": "object",
        "properties": {
            "drug": {"type": "string", "required": True, "default": {"required": True}},
            "limit": {"type": "integer", "required": False},
            "required": {"type": "string"},
            "filter": inner,
            "page": {"type": "integer", "required": "False"},
            "many": {"type": "array", "items": {"type": "string", "required": True}, "required": True},
        },
    }
    assert with_required_lists(schema) == {
        "type": "object",
        "properties": {
            "drug": {"type": "string", "default": {"required": True}},
            "limit": {"type": "integer"},
            "required": {"type": "string"},
            "filter": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
            "page": {"type": "integer"},
            "many": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["drug", "many"],
    }
    assert with_required_lists({"type": "object", "properties": None}) == {"type": "object", "properties": {}}


def test_a_sound_schema_stays_as_it_is() -> None:
    for tool in TOOLS:
        assert with_required_lists(tool["function"]["parameters"]) == tool["function"]["parameters"]
    for odd in (None, 5, "x", [], {}, {"properties": 5}, {"properties": {"a": True}}, {"required": "x"}):
        assert with_required_lists(odd) == odd


def test_every_tool_of_tooluniverse_0_is_usable(shared_data: Callable[[str], Path]) -> None:
    tools = json.loads(shared_data("tooluniverse_v0/tools.json").read_text())
    for tool in tools:
        schema = with_required_lists(tool["parameter"])
        Draft202012Validator.check_schema(schema)
        marked = [name for name, item in (tool["parameter"]["properties"] or {}).items() if item["required"] is True]
        assert schema.get("required", []) == marked
