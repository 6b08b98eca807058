"""What augmentation asks of specs again and again: they are big, and traces show the same few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.mentions import Word, reads_alike, replace_words, runs, spec_text, strings
from txagent_train.data.references import BY_NAME, LISTS, SINGLE, schemas_in
from txagent_train.data.renaming import Change
from txagent_train.data.rewrites import ToolRewrite
from txagent_train.data.withheld import Withheld

_TEXTS = ("description", "title")
"""Keys that hold words for the reader."""
_STRUCTURE = frozenset(
    {*BY_NAME, *LISTS, *SINGLE, "type", "format", "required", "dependentRequired", "$ref", "$dynamicRef"}
)
"""Keys that hold schemas, and names of arguments and of what JSON schema knows."""


class SpecFacts:
    """What a spec says, worked out when it is first asked for."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec
        properties = spec.parameters.get("properties")
        self.arguments: tuple[str, ...] = tuple(properties) if isinstance(properties, dict) else ()

    @cached_property
    def text(self) -> str:
        """All of it."""
        return spec_text(self.spec)

    @cached_property
    def runs(self) -> frozenset[str]:
        """What its text may name (mentions.runs)."""
        return frozenset(runs(self.text))

    @cached_property
    def described(self) -> frozenset[str]:
        """Its descriptions."""
        texts = (strings(value) for key, value in _keywords(self.spec) if key in _TEXTS)
        return frozenset((self.spec.description, *chain.from_iterable(texts)))

    @cached_property
    def values(self) -> frozenset[str]:
        """The texts in it that stay as they are: values that an argument may have, and whatever else there is."""
        texts = (strings(value) for key, value in _keywords(self.spec) if key not in _TEXTS and key not in _STRUCTURE)
        return frozenset(chain.from_iterable(texts))

    def fits(self, arguments: JsonObject) -> bool:
        """Whether arguments fit the parameters; nothing fits a schema that is none."""
        try:
            return self._validator.is_valid(arguments)
        except Exception:  # a schema is anybody's text, and jsonschema raises what it meets in it
            return False

    @cached_property
    def _validator(self) -> Draft202012Validator:
        # The schema itself is checked where data is (data.checks), which takes fifty times as long.
        return Draft202012Validator(self.spec.parameters, registry=Registry())


def _keywords(spec: ToolSpec) -> Iterator[tuple[str, Any]]:
    """The keywords of all the schemas in the parameters, each with its value."""
    return chain.from_iterable(schema.items() for schema in schemas_in(spec.parameters))


def with_words(spec: ToolSpec, words: Mapping[str, Word]) -> ToolSpec:
    """The spec with the words replaced that its descriptions mention; values stay, for calls hold them."""
    description, _ = replace_words(spec.description, words)
    return replace(spec, description=description, parameters=_reworded(spec.parameters, words))


def _reworded(schema: Any, words: Mapping[str, Word]) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: JsonObject = {}
    for key, value in schema.items():
        if key in _TEXTS and isinstance(value, str):
            out[key] = replace_words(value, words)[0]
        elif key in BY_NAME and isinstance(value, dict):
            out[key] = {name: _reworded(item, words) for name, item in value.items()}
        elif key in LISTS and isinstance(value, list):
            out[key] = [_reworded(item, words) for item in value]
        else:
            out[key] = _reworded(value, words) if key in SINGLE else value
    return out


@dataclass(slots=True)
class SpecCache:
    """Facts of specs, and what versions make of them. ``withheld`` are the tools that no version may name."""

    withheld: tuple[Withheld, ...] = ()
    _facts: dict[str, SpecFacts] = field(default_factory=dict)
    _changes: dict[tuple[str, int], Change] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[SpecCache], tuple[tuple[Withheld, ...]]]:
        return SpecCache, (self.withheld,)  # another process makes its own

    def facts(self, spec: ToolSpec) -> SpecFacts:
        known = self._facts.get(spec.name)
        if known is None or not reads_alike(known.spec, spec):
            known = self._facts[spec.name] = SpecFacts(spec)
        return known

    def may_show(self, spec: ToolSpec) -> bool:
        """Whether a spec names no withheld tool."""
        return not any(item.is_named_by(spec) for item in self.withheld)

    def change(self, spec: ToolSpec, rewrite: ToolRewrite) -> Change | None:
        """The change that a version makes; None where the spec is not the tool that was rewritten."""
        key = (rewrite.tool, rewrite.version)
        known = self._changes.get(key)
        if known is not None and reads_alike(known.old, spec):
            # The way back gives the spec as this trace has it, with where it was read from.
            return known if known.old.origin == spec.origin else replace(known, old=spec)
        try:
            new = rewrite.spec(spec)
        except DataError:
            return None
        names = {old: argument.name for old, argument in rewrite.arguments.items()}
        made = self._changes[key] = Change(spec, new, names)
        return made
