"""Tools made up for tests."""

from __future__ import annotations

from txagent_train.core.records import ToolSpec


def tool(name: str, description: str, **arguments: str) -> ToolSpec:
    """A tool whose arguments are texts, the first of them required."""
    properties = {name: {"type": "string", "description": text} for name, text in arguments.items()}
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(arguments)[:1]})
