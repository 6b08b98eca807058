"""A toolbox in numbers."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolcheck import NAME_LIMIT
from txagent_train.data.toolspecs import origin_format

CountTokens = Callable[[str], int]


def toolbox_stats(toolbox: Toolbox, count_tokens: CountTokens | None = None) -> JsonObject:
    """Counts of tools, names, sizes and types of arguments.

    A spec's size is that of the JSON text which a prompt holds of it (name, description, parameters), in characters
    and, with ``count_tokens``, in tokens.
    """
    texts = [spec_text(tool) for tool in toolbox.tools]
    types: Counter[str] = Counter()
    arguments = required = 0
    for tool in toolbox.tools:
        properties = tool.parameters.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        listed = tool.parameters.get("required")
        arguments += len(properties)
        required += len(set(map(str, listed)) & properties.keys()) if isinstance(listed, list) else 0
        types.update(_type_of(item) for item in properties.values())
    out: JsonObject = {
        "hash": toolbox.hash,
        "tools": len(toolbox.tools),
        "arguments": arguments,
        "required_arguments": required,
        "tools_without_arguments": sum(not tool.parameters.get("properties") for tool in toolbox.tools),
        f"names_over_{NAME_LIMIT}": sum(len(tool.name) > NAME_LIMIT for tool in toolbox.tools),
        "formats": dict(Counter(origin_format(tool).name for tool in toolbox.tools).most_common()),
        "argument_types": dict(types.most_common()),
        "name_characters": _spread([len(tool.name) for tool in toolbox.tools]),
        "spec_characters": _spread([len(text) for text in texts]),
    }
    if count_tokens is not None:
        out["spec_tokens"] = _spread([count_tokens(text) for text in texts])
    return out


def spec_text(tool: ToolSpec) -> str:
    """The tool as a prompt shows it: the JSON of name, description and parameters."""
    shown = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return json.dumps(shown, ensure_ascii=False)


def _spread(sizes: Sequence[int]) -> JsonObject:
    return {
        "total": sum(sizes),
        "mean": round(statistics.fmean(sizes), 1),
        "median": statistics.median(sizes),
        "max": max(sizes),
    }


def _type_of(schema: Any) -> str:
    """The type of an argument in one word: several types are joined, other ways of saying it are named."""
    if not isinstance(schema, dict):
        return "any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    if kind is not None:
        return str(kind)
    return next((key for key in ("oneOf", "anyOf", "allOf", "$ref", "enum", "const") if key in schema), "any")
