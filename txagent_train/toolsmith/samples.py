"""Sample calls of a tool, by which a version is proved: renamed, each must be as valid as it was before.

They are made from the schema: nothing, what is required, everything, each argument alone and all but it, an argument
too many, values of a wrong type, and the calls that the schema itself holds as examples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolCall, ToolSpec
from txagent_train.data.rewrites import ToolRewrite
from txagent_train.data.schema_names import EXAMPLES, ArgumentNames
from txagent_train.data.schemas import schema_validator
from txagent_train.toolsmith.synonyms import properties

_SIMPLE = frozenset({"type", "properties", "required", "additionalProperties", "description", "title", "$schema"})
"""Keys of a schema whose arguments do not depend on each other."""
_MOST_SINGLE = 12
_EXTRA = "an_argument_too_many"
_BY_TYPE: dict[str, Any] = {
    "string": "a",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}
_WRONG = {"of": "a wrong type"}
Errors = Counter[tuple[str, tuple[object, ...]]]
"""What a validator finds: how often each keyword fails at each place."""


class SampleCalls:
    """The sample calls of one tool, and what its own schema says of each."""

    def __init__(self, spec: ToolSpec) -> None:
        self._calls: list[tuple[JsonObject, Errors]] = []
        try:
            validator = schema_validator(json.dumps(spec.parameters))
            self._calls = [(call, _errors(validator, call)) for call in _calls(spec)]
        except Exception:  # a schema is anybody's text: where no call can be checked, none breaks
            self._calls = []

    def broken_by(self, rewrite: ToolRewrite, shown: ToolSpec) -> JsonObject | None:
        """The first call that is judged otherwise after the renaming, or None.

        Args:
            shown: the tool as the version shows it.
        """
        names = {old: argument.name for old, argument in rewrite.arguments.items()}
        # Only names and texts differ from a schema that is known to be sound.
        validator = Draft202012Validator(shown.parameters, registry=Registry())
        for call, before in self._calls:
            try:
                after = _errors(validator, rewrite.call(ToolCall(rewrite.tool, call)).arguments)
            except DataError:
                return call
            except Exception:  # a reference that leads nowhere now
                return call
            if after != _renamed(before, names):
                return call
        return None


def _errors(validator: Draft202012Validator, call: JsonObject) -> Errors:
    return Counter((str(error.validator), tuple(error.absolute_path)) for error in validator.iter_errors(call))


def _renamed(errors: Errors, names: dict[str, str]) -> Errors:
    out: Errors = Counter()
    for (keyword, path), count in errors.items():
        first = path[:1]
        renamed = (names.get(first[0], first[0]),) if first and isinstance(first[0], str) else first
        out[keyword, (*renamed, *path[1:])] += count
    return out


def _calls(spec: ToolSpec) -> Iterator[JsonObject]:
    schemas = properties(spec)
    everything = {name: _value(schema) for name, schema in schemas.items()}
    required = spec.parameters.get("required")
    wanted = required if isinstance(required, list) else ()
    yield {}
    yield {name: everything.get(name, "a") for name in wanted if isinstance(name, str)}
    yield everything
    yield everything | {_EXTRA: 1}
    yield dict.fromkeys(everything, _WRONG)
    yield from _held(spec.parameters)
    if spec.parameters.keys() <= _SIMPLE:
        return
    names = [*everything][:_MOST_SINGLE]
    for name in names:
        yield {name: everything[name]}
        yield {other: value for other, value in everything.items() if other != name}
    for name in sorted(ArgumentNames.of(spec.parameters).known - everything.keys()):
        yield everything | {name: "a"}
        yield everything | {name: _WRONG}


def _held(parameters: JsonObject) -> Iterator[JsonObject]:
    """Whole calls that the schema has as values."""
    for key in EXAMPLES:
        value = parameters.get(key)
        yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict))


def _value(schema: Any) -> Any:
    """A value that an argument may well have."""
    if not isinstance(schema, dict):
        return "a"
    for key in ("const", "default", "example"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _value(schema[key][0])
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "array" and "items" in schema:
        return [_value(schema["items"])]
    if kind == "object" and isinstance(schema.get("properties"), dict):
        return {name: _value(inner) for name, inner in schema["properties"].items()}
    return _BY_TYPE.get(kind, "a") if isinstance(kind, str) else "a"
