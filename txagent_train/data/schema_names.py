"""The properties of an arguments object under other names, wherever its JSON schema names them.

A schema names its properties in many places; where one of them cannot be followed (a pattern for names, a definition
that is used for the object itself and elsewhere too), the names have to stay: ``ArgumentNames.fixed`` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from txagent_train.core.records import JsonObject
from txagent_train.data.mentions import strings
from txagent_train.data.references import BY_NAME, LISTS, SINGLE, schemas_in

_SAME_OBJECT = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keys whose schemas are about the same object, and so name its properties too."""
EXAMPLES = ("default", "const", "enum", "example", "examples")
"""Keys that hold values, or lists of them."""
_NAMED = ("properties", "dependentRequired", "dependentSchemas")
_FIXING = ("$ref", "$dynamicRef", "propertyNames", "patternProperties", "dependencies", "$anchor", "$dynamicAnchor")
"""Keys of the object itself through which names are bound in a way that is not followed."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_FOLLOWED = ("#/properties/", "#/$defs/", "#/definitions/")
"""Beginnings of references that a renaming leaves valid, or follows."""
_PLAIN = frozenset(
    {*_SAME_OBJECT, *EXAMPLES, *_NAMED, *BY_NAME, *SINGLE, "required", "type", "title", "description", "$schema", "$id"}
    | {"$comment", "minProperties", "maxProperties", "deprecated", "readOnly", "writeOnly", "format"}
)
"""Keys that name no property, or whose names are followed."""
_POINTER = "#/properties/"


@dataclass(frozen=True, slots=True)
class ArgumentNames:
    """The names of a tool's arguments. ``own`` may be changed, ``known`` are all that the schema has for properties.

    ``fixed`` says why no name may be changed, or is "".
    """

    own: frozenset[str]
    known: frozenset[str]
    fixed: str

    @classmethod
    def of(cls, parameters: JsonObject) -> Self:
        """The names in a tool's parameters."""
        properties = parameters.get("properties")
        own = frozenset(properties) if isinstance(properties, dict) else frozenset[str]()
        known = own.union(*map(_names_in, _same_object(parameters)))
        return cls(own, known, _fixed_by(parameters, own) if own else "")


def rename_properties(parameters: JsonObject, names: Mapping[str, str]) -> JsonObject:
    """The schema of an arguments object with properties renamed; the order and all else is kept."""
    renamed: JsonObject = _Renaming(names).same(parameters)
    return renamed


def _same_object(schema: Any) -> Iterator[JsonObject]:
    """The schemas that say something of the arguments object itself, this one first."""
    if isinstance(schema, list):
        for item in schema:
            yield from _same_object(item)
    elif isinstance(schema, dict):
        yield schema
        for key in _SAME_OBJECT:
            yield from _same_object(schema.get(key))
        dependent = schema.get("dependentSchemas")
        yield from _same_object(list(dependent.values()) if isinstance(dependent, dict) else None)


def _names_in(schema: JsonObject) -> Iterator[str]:
    for key in _NAMED:
        if isinstance(schema.get(key), dict):
            yield from schema[key]
    dependent = schema.get("dependentRequired")
    lists = [schema.get("required"), *(dependent.values() if isinstance(dependent, dict) else ())]
    for item in lists:
        yield from (name for name in item if isinstance(name, str)) if isinstance(item, list) else ()


def _fixed_by(parameters: JsonObject, own: frozenset[str]) -> str:
    for schema in _same_object(parameters):
        for key, value in schema.items():
            if key in _FIXING and value != {}:
                return f"{key} binds them"
            if key not in _PLAIN and key not in _FIXING and not own.isdisjoint(strings(value)):
                return f"{key} names them"
    followed = [schema[key] for schema in schemas_in(parameters) for key in _REFERENCES if key in schema]
    for reference in followed:
        if not isinstance(reference, str) or not reference.startswith(_FOLLOWED) or "%" in reference:
            return f"the reference {reference} may lead to them"
    if len(followed) != sum(1 for _ in _references(parameters)):
        return "a reference stands where no schema does"
    if any("$id" in schema for schema in schemas_in(parameters) if schema is not parameters):
        return "a schema in them has an $id of its own"
    return ""


def _references(value: Any) -> Iterator[str]:
    """Every text that may be a reference, also where no schema stands."""
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in _REFERENCES and not isinstance(item, dict):
                yield str(item)
            yield from _references(item)


class _Renaming:
    """New names by old ones, put into a schema."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def same(self, schema: Any) -> Any:
        """A schema of the arguments object itself."""
        if isinstance(schema, list):
            return [self.same(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        return {key: self._keyword(key, value) for key, value in schema.items()}

    def _keyword(self, key: str, value: Any) -> Any:
        if key in _SAME_OBJECT:
            return self.same(value)
        if key == "required":
            return self._list(value)
        if key in EXAMPLES:
            items = value if isinstance(value, list) else [value]
            renamed = [self._by_name(item) if isinstance(item, dict) else item for item in items]
            return renamed if isinstance(value, list) else renamed[0]
        if key in _NAMED and isinstance(value, dict):
            inner = {"dependentRequired": self._list, "dependentSchemas": self.same}.get(key, self._other)
            return self._by_name({name: inner(item) for name, item in value.items()})
        return self._inside(key, value)

    def _list(self, names: Any) -> Any:
        if not isinstance(names, list):
            return names
        return [self._names.get(name, name) if isinstance(name, str) else name for name in names]

    def _by_name(self, value: JsonObject) -> JsonObject:
        return {self._names.get(name, name): item for name, item in value.items()}

    def _other(self, schema: Any) -> Any:
        """A schema of something else, with every ``$ref`` to a property of the tool pointed at its new name."""
        if not isinstance(schema, dict):
            return schema
        return {key: self._inside(key, value) for key, value in schema.items()}

    def _inside(self, key: str, value: Any) -> Any:
        if key in BY_NAME and isinstance(value, dict):
            return {name: self._other(item) for name, item in value.items()}
        if key in LISTS and isinstance(value, list):
            return [self._other(item) for item in value]
        if key in SINGLE:
            return self._other(value)
        return self._pointer(value) if key in _REFERENCES else value

    def _pointer(self, pointer: Any) -> Any:
        if not isinstance(pointer, str) or not pointer.startswith(_POINTER):
            return pointer
        name, slash, rest = pointer.removeprefix(_POINTER).partition("/")
        plain = name.replace("~1", "/").replace("~0", "~")
        escaped = self._names.get(plain, plain).replace("~", "~0").replace("/", "~1")
        return f"{_POINTER}{escaped}{slash}{rest}"
