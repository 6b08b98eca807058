"""Validation errors as lines for a person: ``train.learning_rat: unknown key (line 12); did you mean ...?``"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from txagent_train.config.fields import Conflicts
from txagent_train.config.nodes import Key, Node, Place, child, dotted, parse_key

Pattern = tuple[str, ...]
"""A key of the schema; "*" stands for a position in a list: ``("data", "sources", "*", "path")``."""


def known_keys(schema: type[BaseModel], above: Pattern = ()) -> Iterator[Pattern]:
    """Every key that a schema knows, sections before the keys in them."""
    for name, field in schema.model_fields.items():
        here = (*above, name)
        yield here
        section, is_list = _section_of(field.annotation)
        if section is not None:
            yield from known_keys(section, (*here, "*") if is_list else here)


def _section_of(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section that a field holds, and whether it holds a list of them."""
    if get_origin(annotation) is tuple:
        return _section_of(get_args(annotation)[0])[0], True
    if get_origin(annotation) in (Union, types.UnionType):
        found = [_section_of(option) for option in get_args(annotation)]
        return next((pair for pair in found if pair[0] is not None), (None, False))
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return (annotation if is_section else None), False


def nearest_key(schema: type[BaseModel], key: Key) -> str:
    """The known key nearest to an unknown one, or "".

    Looks among its siblings first, then for the same name in another section, then for a near one anywhere.
    """
    *above, name = ("*" if isinstance(part, int) else part for part in key)
    known = [pattern for pattern in known_keys(schema) if pattern[-1] != "*"]
    siblings = [pattern[-1] for pattern in known if list(pattern[:-1]) == above]
    close = get_close_matches(name, siblings, n=1)
    if close:
        return dotted((*key[:-1], close[0]))
    elsewhere = get_close_matches(name, [pattern[-1] for pattern in known], n=1, cutoff=0.75)
    if elsewhere:
        return dotted(next(pattern for pattern in known if pattern[-1] == elsewhere[0])).replace("*", "0")
    return ""


def describe(errors: Sequence[ErrorDetails], schema: type[BaseModel], root: Node, recipe: Path) -> list[str]:
    """One line for each error of ``schema``, in the order of the recipe's lines."""
    found: list[tuple[Place, str]] = []
    for error in errors:
        for key, text, hint in _explain(error, schema):
            place = _nearest_place(root, key)
            found.append((place, f"{dotted(key)}: {text}{where(place, recipe)}{hint}"))
    return [line for _, line in sorted(found, key=lambda item: item[0].line)]  # overrides (line 0) first


def errors_of(error: ValidationError) -> list[ErrorDetails]:
    """The errors of a failed validation, less what only follows from others."""
    found = error.errors(include_url=False)
    # Pydantic takes a list whose items are all wrong for an empty one; the items have errors of their own.
    inner = {item["loc"][:size] for item in found for size in range(len(item["loc"]))}
    return [item for item in found if not (item["type"] == "too_short" and item["loc"] in inner)]


def keys_of(error: ErrorDetails) -> list[Key]:
    """The keys that an error is about: several where keys conflict."""
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, Conflicts):
        return [(*error["loc"], *parse_key(key)) for key, _ in cause.problems]
    return [error["loc"]]


def where(place: Place, recipe: Path) -> str:
    """`` (line 12)``, `` (line 3 of _base/agent.yaml)`` or `` (override)``."""
    if place.file is None:
        return " (override)"
    if place.file == recipe:
        return f" (line {place.line})"
    return f" (line {place.line} of {place.file})"


def _nearest_place(root: Node, key: Key) -> Place:
    """The place of ``key``, or of the innermost section around it that is in the recipe."""
    node = root
    for part in key:
        below = child(node, part)
        if below is None:
            break
        node = below
    return node.place


def _explain(error: ErrorDetails, schema: type[BaseModel]) -> Iterator[tuple[Key, str, str]]:
    """(key, what is wrong, hint) of an error of pydantic."""
    key = error["loc"]
    context = error.get("ctx", {})
    kind = error["type"]
    if kind == "extra_forbidden":
        near = nearest_key(schema, key)
        yield key, "unknown key", f"; did you mean {near}?" if near else _list_known(schema, key)
    elif kind == "literal_error":
        options = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        close = get_close_matches(str(error["input"]), options, n=1)
        text = f"must be {' | '.join(options)}, not {_show(error['input'])}"
        yield key, text, f"; did you mean {close[0]}?" if close and len(options) > 1 else ""
    elif kind == "value_error":
        cause = context["error"]
        texts = [text for _, text in cause.problems] if isinstance(cause, Conflicts) else [str(cause)]
        for wrong, text in zip(keys_of(error), texts, strict=True):
            yield wrong, text, ""
    else:
        wording = WORDING.get(kind)
        yield key, wording(context, error["input"]) if wording else error["msg"], ""


def _list_known(schema: type[BaseModel], key: Key) -> str:
    above = tuple("*" if isinstance(part, int) else str(part) for part in key[:-1])
    return f"; known: {', '.join(pattern[-1] for pattern in known_keys(schema) if pattern[:-1] == above)}"


def _show(value: object) -> str:
    """A value as one would say it: ``the text 'x'``, ``a section``, ``true``."""
    if isinstance(value, str):
        return f"the text {value!r}" if value else "an empty text"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, (list, tuple)):
        return "a list"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _must_be(what: str) -> Callable[[dict[str, Any], object], str]:
    return lambda context, value: f"must be {what.format(**context)}, not {_show(value)}"


# By pydantic's error types; a type that is not here keeps pydantic's own message.
WORDING: dict[str, Callable[[dict[str, Any], object], str]] = {
    "missing": lambda _, __: "missing",
    "bool_type": _must_be("true or false"),
    "dict_type": _must_be("a section"),
    "finite_number": _must_be("a finite number"),
    "float_type": _must_be("a number"),
    "greater_than": _must_be("greater than {gt:g}"),
    "greater_than_equal": _must_be("at least {ge:g}"),
    "int_from_float": _must_be("a whole number"),
    "int_type": _must_be("a whole number"),
    "less_than": _must_be("less than {lt:g}"),
    "less_than_equal": _must_be("at most {le:g}"),
    "model_type": _must_be("a section"),
    "path_type": _must_be("a path"),
    "is_instance_of": _must_be("a path"),
    "string_too_short": lambda _, __: "must not be empty",
    "string_type": _must_be("a text"),
    "too_short": lambda context, _: f"must have at least {context['min_length']} item",
    "tuple_type": _must_be("a list"),
}
