"""Formats that have name, description and parameters at fixed places of an object.

What a spec holds besides, and in which order, is kept as its origin:

    {"format": "openai", "derived": ["name", "description", "parameters"], "item": {...}}

``item`` is the spec as it was read, with null at the places that can be written anew from the fields of the ToolSpec
(``derived``); what would come out otherwise (a description that is null) stands in it as it was. ``derived`` and
``item`` are left out where the spec has the three fields alone, in the usual order. So nothing is held twice, and
what comes back is the same to the letter.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.toolspecs.fields import read_fields

Place: TypeAlias = tuple[str, ...]
"""Keys from the outside inwards."""
FIELDS = ("name", "description", "parameters")
SCHEMA_KEYS = ("parameters", "parameter", "input_schema", "inputSchema")
"""What the parameters are called, in one format or another."""


def _as_they_are(parameters: JsonObject) -> JsonObject:
    return parameters


def _alone(parameters: Any, item: JsonObject) -> Any:
    return parameters


@dataclass(frozen=True, slots=True)
class PlacedFormat:
    """A format with its fields at fixed places.

    Args:
        places: where each of FIELDS stands; of several places the first that an item has.
        around: a spec of the three fields alone, with null for each.
        as_written: the parameters as the format writes them.
        merged: the parameters as an item means them, where they do not stand in one place alone.
    """

    name: str
    places: tuple[Place, Place, tuple[Place, ...]]
    around: JsonObject
    as_written: Callable[[JsonObject], JsonObject] = _as_they_are
    merged: Callable[[Any, JsonObject], Any] = _alone

    def read(self, item: JsonObject) -> ToolSpec:
        """The tool of an item, with its origin.

        Raises:
            DataError: as read_fields; or the item has another shape.
        """
        spec = self._fields(item)
        skeleton = copy.deepcopy(item)
        derived = []
        for field, place, value in self._written(spec, item):
            if _has(item, place) and _text(_get(item, place)) == _text(value):
                derived.append(field)
                _put(skeleton, place, None)
        origin: JsonObject = {"format": self.name}
        if len(derived) < len(FIELDS) or _text(skeleton) != _text(self._blank()):
            origin |= {"derived": derived, "item": skeleton}
        return replace(spec, origin=origin)

    def write(self, spec: ToolSpec) -> JsonObject:
        """The item of a tool: the very one it was read from, where that was in this format.

        A field that was changed since is written anew; all else of the item stays.

        Raises:
            DataError: the format cannot hold the tool (reason ``not_writable``).
        """
        from_here = spec.origin.get("format") == self.name and {"item", "derived"} <= spec.origin.keys()
        item = copy.deepcopy(spec.origin["item"]) if from_here else self._blank()
        derived = spec.origin["derived"] if from_here else FIELDS
        for field, place, value in self._written(spec, item):
            if field in derived:
                _put(item, place, value)
        held = self._fields(item)
        for field, place, value in self._written(spec, item):
            if _text(getattr(held, field)) != _text(getattr(spec, field)):
                _put(item, place, value)
        back = self._fields(item)
        wrong = [field for field in FIELDS if _meaning(getattr(back, field)) != _meaning(getattr(spec, field))]
        if wrong:
            problem = f"the format {self.name} cannot hold the {' and '.join(wrong)} of tool {spec.name}"
            raise DataError(problem, reason="not_writable", fix="choose another format, or the one it was read from")
        return item

    def _fields(self, item: JsonObject) -> ToolSpec:
        for field, place in zip(FIELDS, self._places(item), strict=True):
            if not _inside(item, place):
                what = ".".join(place[:-1])
                raise DataError(f"the {field} of a tool stands in {what}, which is not there", reason="not_a_tool")
        self._check_parameters(item)
        name, description, parameters = (_get(item, place) for place in self._places(item))
        return read_fields(name, description, self.merged(parameters, item))

    def _check_parameters(self, item: JsonObject) -> None:
        """Refuse an item with its parameters under another format's name: they would be taken for none."""
        own = [place[-1] for place in self.places[2]]
        holder = _holder(item, self.places[2][0])
        other = next((key for key in SCHEMA_KEYS if key in holder), None)
        if other is not None and not any(key in holder for key in own):
            problem = f"the tool has {other}, where the format {self.name} has {' or '.join(own)}"
            raise DataError(problem, reason="other_format", fix="keep the tools of each format in a file of their own")

    def _places(self, item: JsonObject) -> tuple[Place, Place, Place]:
        name, description, choices = self.places
        return name, description, next((place for place in choices if _has(item, place)), choices[0])

    def _written(self, spec: ToolSpec, item: JsonObject) -> list[tuple[str, Place, Any]]:
        """Each field, its place in an item, and what this format writes there."""
        values = (spec.name, spec.description, self.as_written(spec.parameters))
        return list(zip(FIELDS, self._places(item), values, strict=True))

    def _blank(self) -> JsonObject:
        return copy.deepcopy(self.around)


def _text(value: Any) -> str:
    """Equal where two values are written alike: 1, 1.0 and true differ, and so does the order of keys."""
    return json.dumps(value)


def _meaning(value: Any) -> str:
    """The same without the order of keys: another format may have its list of required properties elsewhere."""
    return json.dumps(value, sort_keys=True)


def _inside(item: Any, place: Place) -> bool:
    """Whether the object is there that holds the last key of a place."""
    for key in place[:-1]:
        item = item.get(key) if isinstance(item, dict) else None
    return isinstance(item, dict)


def _has(item: JsonObject, place: Place) -> bool:
    return _inside(item, place) and place[-1] in _holder(item, place)


def _holder(item: JsonObject, place: Place) -> JsonObject:
    for key in place[:-1]:
        item = item[key]
    return item


def _get(item: JsonObject, place: Place) -> Any:
    return _holder(item, place).get(place[-1])


def _put(item: JsonObject, place: Place, value: Any) -> None:
    _holder(item, place)[place[-1]] = value
