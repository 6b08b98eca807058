"""The formats that tool specs are read from and written in: one file each, with one ``FORMAT``.

    FORMATS[name].read(item) -> ToolSpec        FORMATS[name].write(spec) -> item

``write(read(item)) == item`` to the letter, order of keys and types of numbers included. To add a format, write that
file, put its FORMAT into FORMATS, and say in ``guess`` how its items are told from the others.
"""

from __future__ import annotations

from typing import Protocol

from txagent_train.core.errors import UserError, known_names
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.toolspecs import (
    biotool,
    json_schema,
    native,
    openai,
    plain,
    tooluniverse_v0,
    tooluniverse_v1,
)


class SpecFormat(Protocol):
    """Reads and writes the specs of one format.

    Raises:
        DataError: an item is no tool of this format, or a tool cannot be written in it.
    """

    @property
    def name(self) -> str: ...

    def read(self, item: JsonObject) -> ToolSpec: ...

    def write(self, spec: ToolSpec) -> JsonObject: ...


AUTO = "auto"
"""Stands for a format where it is to be guessed."""
ORIGIN = "origin"
"""Stands, for writing, for the format that each tool was read from."""
FORMATS: dict[str, SpecFormat] = {
    module.FORMAT.name: module.FORMAT
    for module in (native, tooluniverse_v0, tooluniverse_v1, openai, plain, json_schema, biotool)
}


def format_for(name: str) -> SpecFormat:
    """The format of a name.

    Raises:
        UserError: there is no such format.
    """
    if name in FORMATS:
        return FORMATS[name]
    raise UserError(f"there is no format {name!r} for tools", fix=known_names(name, FORMATS))


def origin_format(spec: ToolSpec) -> SpecFormat:
    """The format that a tool was read from; plain where its origin does not tell."""
    return FORMATS.get(str(spec.origin.get("format")), plain.FORMAT)


def states_parameters(spec: ToolSpec) -> bool:
    """Whether what the tool was read from says anything about its arguments; one that does not takes none."""
    kept = spec.origin.get("derived", ["parameters"])
    return "parameters" in kept or bool(spec.parameters.get("properties"))
