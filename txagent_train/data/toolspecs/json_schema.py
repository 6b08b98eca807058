"""A JSON schema that is the tool: its ``title`` is the name, as pydantic writes it for a model of arguments."""

from __future__ import annotations

from dataclasses import replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.toolspecs.fields import read_fields

_OWN = ("title", "description")


class JsonSchemaFormat:
    """The origin has the order of the keys."""

    name = "json_schema"

    def read(self, item: JsonObject) -> ToolSpec:
        """The tool of a schema.

        Raises:
            DataError: it has no title, or its description is no text.
        """
        spec = read_fields(item.get("title"), item.get("description", ""), None)
        if "description" in item and not isinstance(item["description"], str):
            raise DataError(f"the description of tool {spec.name} must be text", reason="wrong_type")
        parameters = {key: value for key, value in item.items() if key not in _OWN}
        return replace(spec, parameters=parameters, origin={"format": self.name, "keys": list(item)})

    def write(self, spec: ToolSpec) -> JsonObject:
        """The schema of a tool: the very one it was read from, where that was in this format.

        Raises:
            DataError: the parameters have a title or a description of their own (reason ``not_writable``).
        """
        own = next((key for key in _OWN if key in spec.parameters), None)
        if own is not None:
            problem = f"the parameters of tool {spec.name} have a {own}, which would be that of the tool"
            raise DataError(problem, reason="not_writable", fix="choose another format")
        whole = {"title": spec.name, "description": spec.description, **spec.parameters}
        keys = spec.origin["keys"] if spec.origin.get("format") == self.name else list(whole)
        if "description" not in keys and not spec.description:
            del whole["description"]
        return {
            key: whole[key] for key in [*(key for key in keys if key in whole), *(k for k in whole if k not in keys)]
        }


FORMAT = JsonSchemaFormat()
