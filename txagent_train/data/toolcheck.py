"""What is wrong with the tools of a toolbox, or will be, where a model or a server reads them.

A finding is no error: a toolbox with findings can be trained on, and real ones have many. Two tools of one name are
an error when a toolbox is read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from jsonschema.exceptions import best_match

from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.references import references_of
from txagent_train.data.schemas import SUBSCHEMAS, schema_validator
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolspecs import states_parameters

NAME_LIMIT = 64
"""Characters of a name that OpenAI, Anthropic and most servers take."""
MEANINGS = {
    "name_too_long": f"many servers refuse a name of more than {NAME_LIMIT} characters; rewrites can be shorter",
    "name_not_ascii": "many servers take ASCII letters alone",
    "name_not_identifier": "a name is safe with letters, digits and underscores, not beginning with a digit",
    "empty_description": "a model has only the name to go by",
    "property_without_description": "a model has only the name of the argument to go by",
    "no_parameters": "the spec says nothing of arguments: it is read as a tool that takes none",
    "invalid_schema": "no call can be checked against it: write it as JSON schema 2020-12",
    "not_an_object": "arguments are an object, so the schema's type must be object",
    "unknown_required": "a required argument is not among the properties, so its type is not known",
    "circular_ref": "no check of a call against it would end: let the $ref lead to a schema",
    "recursive_ref": "the schema holds itself; it is sound, but some servers refuse it",
    "unresolved_ref": "the $ref leads to no schema inside the spec, and nothing is ever fetched",
    "example_breaks_schema": "a call that the spec gives as an example does not fit its own schema",
}
"""What each finding means, or what to do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one tool; ``kind`` is one of MEANINGS, ``detail`` says where or what."""

    tool: str
    kind: str
    detail: str = ""

    def to_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """The findings of a toolbox, by tool in its order."""

    tools: int
    findings: tuple[Finding, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Findings by kind, the most frequent first."""
        return dict(Counter(finding.kind for finding in self.findings).most_common())

    def to_json(self) -> JsonObject:
        affected = len({finding.tool for finding in self.findings})
        found = [finding.to_json() for finding in self.findings]
        return {"tools": self.tools, "with_findings": affected, "counts": self.counts, "findings": found}


def check_toolbox(toolbox: Toolbox) -> ToolCheck:
    """Look at every tool."""
    found = tuple(Finding(tool.name, kind, detail) for tool in toolbox.tools for kind, detail in _findings(tool))
    return ToolCheck(len(toolbox.tools), found)


def _findings(tool: ToolSpec) -> Iterator[tuple[str, str]]:
    if len(tool.name) > NAME_LIMIT:
        yield "name_too_long", f"{len(tool.name)} characters"
    if not tool.name.isascii():
        yield "name_not_ascii", ""
    if not tool.name.isidentifier():
        yield "name_not_identifier", ""
    if not tool.description.strip():
        yield "empty_description", ""
    if not states_parameters(tool):
        yield "no_parameters", ""
    yield from (("property_without_description", place) for place in _undescribed(tool.parameters))
    yield from _schema_findings(tool)


def _undescribed(schema: Any, place: str = "", described: frozenset[str] = frozenset()) -> Iterator[str]:
    """The properties without a description, at every depth; ``described`` are those of the object that have one."""
    if isinstance(schema, list):
        for item in schema:
            yield from _undescribed(item, place, described)
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    described |= {name for name, item in properties.items() if _is_described(item)}
    for name, item in properties.items():
        inner = f"{place}.{name}" if place else name
        if name not in described:
            yield inner
        yield from _undescribed(item, inner)
    for key in SUBSCHEMAS:
        # One of several forms of an object says the more of a property that is described for all.
        same = described if key in ("anyOf", "oneOf", "allOf") else frozenset()
        yield from _undescribed(schema.get(key), f"{place}[]" if key == "items" else place, same)


def _is_described(schema: Any) -> bool:
    text = schema.get("description") if isinstance(schema, dict) else None
    return isinstance(text, str) and bool(text.strip())


def _schema_findings(tool: ToolSpec) -> Iterator[tuple[str, str]]:
    schema = tool.parameters
    references = references_of(schema)
    for kind in ("unresolved", "circular", "recursive"):
        yield from ((f"{kind}_ref", reference) for reference in dict.fromkeys(getattr(references, kind)))
    if references.circular:
        return
    try:
        validator = schema_validator(json.dumps(schema))
    except Exception as error:  # a schema is anybody's text, and jsonschema raises what it meets in it
        place = getattr(error, "json_path", "$").removeprefix("$").removeprefix(".")
        message = str(getattr(error, "message", "") or error) or type(error).__name__
        yield "invalid_schema", f"{place}: {message}" if place else message
        return
    if schema.get("type", "object") != "object":
        yield "not_an_object", f"type is {json.dumps(schema['type'])}"
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    yield from (("unknown_required", name) for name in schema.get("required", []) if name not in known)
    if not references.unresolved:
        yield from _example_findings(tool, validator)


def _example_findings(tool: ToolSpec, validator: Any) -> Iterator[tuple[str, str]]:
    """ToolUniverse gives calls as examples, in ``test_examples``."""
    item = tool.origin.get("item")
    examples = item.get("test_examples") if isinstance(item, dict) else None
    for number, example in enumerate(examples if isinstance(examples, list) else [], 1):
        problem = best_match(validator.iter_errors(example)) if isinstance(example, dict) else None
        if problem is not None:
            yield "example_breaks_schema", f"example {number}: {problem.message}"
