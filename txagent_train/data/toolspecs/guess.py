"""Which format the specs of a file have, from the keys of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject
from txagent_train.data.toolspecs import FORMATS
from txagent_train.data.toolspecs.placed import SCHEMA_KEYS

_KEYS_SHOWN = 8
_EITHER_READS = {"tooluniverse_v0", "tooluniverse_v1"}
"""Formats that read each other's specs; they differ in what they write for a tool of another format."""


def guess_spec_format(items: Sequence[Any], path: Path) -> str:
    """The format of most items; a faulty one among sound ones must not decide.

    Raises:
        DataError: they do not tell (reason ``unknown_format``).
    """
    objects = [item for item in items if isinstance(item, dict)]
    signs = Counter(filter(None, map(_sign, objects))) or Counter(filter(None, map(_weak_sign, objects)))
    if signs["native"]:  # it has a key that no other has, and not in every record
        return "native"
    for name, count in signs.most_common(1):
        if 2 * count > signs.total() or signs.keys() <= _EITHER_READS:
            return name
    keys = list(objects[0]) if objects else []
    shown = ", ".join(keys[:_KEYS_SHOWN]) + (", ..." if len(keys) > _KEYS_SHOWN else "") or "no key"
    seen = f"signs of {', '.join(signs)}" if signs else f"the first has {shown}"
    problem = f"the format of the tools cannot be told from the file: {seen}"
    fix = f"name it with --format: {', '.join(FORMATS)}"
    raise DataError(problem, reason="unknown_format", path=str(path), fix=fix)


def is_spec(item: JsonObject) -> bool:
    """Whether an object looks like a single spec, and not like a mapping of specs by name."""
    return isinstance(item.get("name"), str) or "parameter" in item or _sign(item) is not None


def _sign(item: JsonObject) -> str | None:
    if isinstance(item.get("function"), dict):
        return "openai"
    if isinstance(item.get("document"), dict):
        return "biotool"
    if isinstance(parameter := item.get("parameter"), dict) and parameter.get("properties", {}) != {}:
        return "tooluniverse_v0" if _has_marks(parameter["properties"]) else "tooluniverse_v1"
    if any(key in item for key in SCHEMA_KEYS if key != "parameter"):
        return "native" if "origin" in item else "plain"
    if "return_schema" in item:
        return "tooluniverse_v1"
    if isinstance(item.get("properties"), dict):
        return "json_schema"
    return None


def _weak_sign(item: JsonObject) -> str | None:
    """What an item of a file may be in which no item shows more: a tool without arguments, or with a name alone."""
    if "parameter" in item:
        return "tooluniverse_v1"
    return "plain" if isinstance(item.get("name"), str) and isinstance(item.get("description"), str) else None


def _has_marks(properties: Any) -> bool:
    """Whether properties say each for itself if they are required, or are null."""
    if not isinstance(properties, dict):
        return properties is None
    return any(isinstance(item, dict) and isinstance(item.get("required"), bool) for item in properties.values())
