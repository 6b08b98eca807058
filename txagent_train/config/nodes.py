"""YAML files as trees that remember where each value stands; ``extends:`` merges two of them.

YAML is read by the core schema of YAML 1.2: ``2e-4`` is a number and ``off`` is a text. (PyYAML's YAML 1.1 reads
the first as a text and the second as false.) A key that stands twice is an error, not a silent replacement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

MAX_DEPTH = 50
"""Values in values in values: more is no recipe, and would end in the interpreter's recursion limit."""
Key: TypeAlias = Sequence[str | int]
"""Where a value is in a recipe: ``("data", "sources", 0, "path")``, written ``data.sources.0.path``."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: a line (from 1) of a file, or an override on the command line (no file)."""

    file: Path | None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place; mappings and lists hold nodes."""

    value: Any
    place: Place


class YamlProblem(Exception):
    """A text that is not the YAML a recipe is made of; ``line`` counts from 1."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.line = line
        super().__init__(text)


class _Loader(yaml.SafeLoader):
    """PyYAML's loader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own class attribute


# The order counts: the first pattern that fits a plain scalar names its type.
CORE_SCALARS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?(0|[1-9](_?[0-9])*)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
)
for _tag, _pattern, _first in CORE_SCALARS:
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would read as something else."""


for _tag, _pattern, _first in CORE_SCALARS:
    _Dumper.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first)


class _Reader:
    """Turns the nodes of PyYAML into ours and collects what is wrong on the way."""

    def __init__(self, loader: _Loader, file: Path | None) -> None:
        self.loader = loader
        self.file = file
        self.problems: list[YamlProblem] = []
        self._open: set[int] = set()

    def read(self, node: yaml.Node, key: Key, line: int) -> Node:
        place = Place(self.file, line if self.file else 0)
        if isinstance(node, yaml.ScalarNode):
            return Node(self._scalar(node, key), place)
        if len(key) > MAX_DEPTH:
            raise YamlProblem(f"nested more than {MAX_DEPTH} deep", line)
        if id(node) in self._open:
            raise YamlProblem(f"{dotted(key)}: an alias (*name) stands inside the value that it names", line)
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            value: Any = self._mapping(node, key)
        else:
            value = [self.read(item, (*key, index), _line(item)) for index, item in enumerate(node.value)]
        self._open.remove(id(node))
        return Node(value, place)

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        try:
            return self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            text = f"{dotted(key)}: {node.value!r} cannot be read as {node.tag}"
            self.problems.append(YamlProblem(text, _line(node)))
            return None

    def _mapping(self, mapping: yaml.MappingNode, above: Key) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for name_node, value_node in mapping.value:
            line = _line(name_node)
            name = self._scalar(name_node, above) if isinstance(name_node, yaml.ScalarNode) else None
            if not isinstance(name, str):
                self.problems.append(YamlProblem(f"{dotted(above) or 'the recipe'}: a key must be a text", line))
                continue
            key = (*above, name)
            if name in entries:
                first = entries[name].place.line
                text = f"{dotted(key)}: stands twice" + (f", first in line {first}" if first else "")
                self.problems.append(YamlProblem(text, line))
                continue
            entries[name] = self.read(value_node, key, line)
        return entries


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def read_yaml(text: str, file: Path | None) -> tuple[Node, list[YamlProblem]]:
    """The tree of a YAML text, and problems that leave the rest readable (a key twice).

    Raises:
        YamlProblem: the text is not YAML at all.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem(f"not YAML: the character {error.character!r} is not allowed", line) from None
    except RecursionError:
        raise YamlProblem(f"nested more than {MAX_DEPTH} deep", 1) from None
    if root is None:
        return Node(None, Place(file, 1 if file else 0)), []
    reader = _Reader(loader, file)
    return reader.read(root, (), _line(root)), reader.problems


def dump_yaml(data: object) -> str:
    """Plain data as YAML that ``read_yaml`` reads back unchanged; keys in their order."""
    # ASCII only: PyYAML writes some Unicode line breaks unescaped and then reads them as spaces.
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=110)


def plain(node: Node) -> Any:
    """The value without places."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def merge(base: Node, over: Node) -> Node:
    """``over`` laid on ``base``: mappings are merged key by key, everything else (lists too) is replaced."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    merged = dict(base.value)
    for key, item in over.value.items():
        merged[key] = merge(merged[key], item) if key in merged else item
    return Node(merged, over.place)


def child(node: Node, part: str | int) -> Node | None:
    """The value under a key or at a position, or None."""
    if isinstance(node.value, dict):
        found = node.value.get(part)
        assert found is None or isinstance(found, Node)
        return found
    if isinstance(node.value, list) and isinstance(part, int) and 0 <= part < len(node.value):
        item = node.value[part]
        assert isinstance(item, Node)
        return item
    return None


def find(root: Node, key: Key) -> Node | None:
    """The node at ``key``, or None where the recipe has none."""
    node: Node | None = root
    for part in key:
        if node is None:
            return None
        node = child(node, part)
    return node


def replace(node: Node, key: Key, new: Node, *, above: Key = ()) -> Node:
    """The tree with ``new`` at ``key``; sections that are not there yet are made. ``above`` is the key of ``node``.

    Raises:
        ValueError: the way leads through a value that is no section, or to a position that the list lacks.
    """
    if len(above) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if not key:
        return new
    part, rest = key[0], key[1:]
    here = (*above, part)
    if isinstance(node.value, list):
        item = child(node, part)
        if item is None:
            size = len(node.value)
            raise ValueError(f"{dotted(above)}: a list of {size}; give a position below {size}, or a whole list [..]")
        below = replace(item, rest, new, above=here)
        return Node([below if old is item else old for old in node.value], node.place)
    if not isinstance(node.value, dict):
        raise ValueError(f"{dotted(above)}: {node.value!r} is not a section, so it has no key {part}")
    below = replace(child(node, part) or Node({}, new.place), rest, new, above=here)
    return Node({**node.value, part: below}, node.place)


def dotted(key: Key) -> str:
    """``("data", "sources", 0)`` -> ``data.sources.0``."""
    return ".".join(str(part) for part in key)


def parse_key(text: str) -> Key:
    """The inverse of ``dotted``."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split("."))
