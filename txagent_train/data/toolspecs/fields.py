"""The three fields of a tool as specs write them, made what a ToolSpec holds."""

from __future__ import annotations

from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.schemas import with_required_lists


def read_fields(name: object, description: object, parameters: Any) -> ToolSpec:
    """The tool without an origin. No description is an empty one; no parameters: the tool takes no arguments.

    Raises:
        DataError: there is no name (reason ``tool_without_name``), or a field has the wrong type.
    """
    if not isinstance(name, str) or not name.strip():
        raise DataError("a tool has no name", reason="tool_without_name")
    schema: JsonObject = {"type": "object", "properties": {}}
    return ToolSpec(
        name,
        # The record says what is wrong with another type.
        "" if description is None else description,  # type: ignore[arg-type]
        schema if parameters is None else with_required_lists(parameters),
    )
