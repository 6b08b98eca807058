"""The tools of a toolbox file, as ``core.codec`` writes them."""

from __future__ import annotations

from txagent_train.core.codec import tool_from_json, tool_to_json
from txagent_train.core.records import JsonObject, ToolSpec


class NativeFormat:
    name = "native"

    def read(self, item: JsonObject) -> ToolSpec:
        """The tool of a record, its origin as it stands there. Raises DataError: a key is missing or unknown."""
        return tool_from_json(item)

    def write(self, spec: ToolSpec) -> JsonObject:
        return tool_to_json(spec)


FORMAT = NativeFormat()
