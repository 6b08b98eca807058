"""References inside a JSON schema: those that lead nowhere, and those that lead in a circle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from txagent_train.core.records import JsonObject

BY_NAME = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keys that hold schemas by name."""
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
"""Keys that hold lists of schemas."""
SINGLE = (
    *("not", "if", "then", "else", "items", "additionalItems", "unevaluatedItems", "contains"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "contentSchema"),
)
"""Keys that hold one schema."""
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keys whose schemas are about the same value as the schema that holds them."""
_DEFINITIONS = ("$defs", "definitions")
_ALL = (*BY_NAME, *LISTS, *SINGLE)
_APPLIED = tuple(key for key in _ALL if key not in _DEFINITIONS)
_ANCHORS = ("$anchor", "$dynamicAnchor")
_REFERENCES = ("$ref", "$dynamicRef")


@dataclass(slots=True)
class References:
    """What is said of the references of a schema.

    ``unresolved`` lead to no schema inside it: nothing is ever fetched. ``circular`` come back to themselves without a
    step into the value, so that no check of a value against them ends. ``recursive`` come back with such a step: sound,
    for values of any depth (a tree), but some servers refuse them.
    """

    unresolved: list[str] = field(default_factory=list)
    circular: list[str] = field(default_factory=list)
    recursive: list[str] = field(default_factory=list)


def references_of(schema: Any) -> References:
    """Follow every reference of a schema, in time that grows with its size."""
    graph = _Graph(schema)
    out = References(unresolved=graph.unresolved)
    in_place, applied = graph.circles(_IN_PLACE), graph.circles(_APPLIED)
    for node, reference, target in graph.followed():
        # A reference comes back to itself where both of its ends are in one circle.
        if in_place[id(node)] == in_place.get(id(target)):
            out.circular.append(reference)
        elif applied[id(node)] == applied.get(id(target)):
            out.recursive.append(reference)
    return out


def schemas_in(schema: Any) -> Iterator[JsonObject]:
    """A schema and all that stand in it, without those that only a reference finds."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(_children(node, _ALL))


class _Graph:
    """The schemas inside a schema, and where their references lead."""

    def __init__(self, schema: Any) -> None:
        self.unresolved: list[str] = []
        self._nodes: dict[int, JsonObject] = {}
        self._targets: dict[int, list[tuple[str, Any]]] = {}
        self._add(schema)
        anchors = {f"#{node[key]}": node for node in self._nodes.values() for key in _ANCHORS if key in node}
        pending = list(self._nodes.values())
        while pending:
            node = pending.pop()
            for reference in (node[key] for key in _REFERENCES if key in node):
                target = _target(schema, reference, anchors)
                if target is None:
                    self.unresolved.append(str(reference))
                    continue
                self._targets.setdefault(id(node), []).append((reference, target))
                pending += self._add(target)  # a schema may stand where only a reference looks for it

    def _add(self, schema: Any) -> list[JsonObject]:
        """Take in a schema and all that stand in it; those that are new."""
        new: list[JsonObject] = []
        stack = [schema]
        while stack:
            node = stack.pop()
            if isinstance(node, dict) and id(node) not in self._nodes:
                self._nodes[id(node)] = node
                new.append(node)
                stack.extend(_children(node, _ALL))
        return new

    def followed(self) -> Iterator[tuple[JsonObject, str, Any]]:
        """Each reference: the schema that has it, its text, and the schema that it leads to."""
        for node in self._nodes.values():
            for reference, target in self._targets.get(id(node), ()):
                yield node, reference, target

    def circles(self, keys: tuple[str, ...]) -> dict[int, int]:
        """The number of the circle of each schema, over references and what stands under ``keys``.

        Two schemas have one number where each can be reached from the other.
        """

        def following(node: int) -> Iterator[int]:
            schema = self._nodes[node]
            found = [*_children(schema, keys), *(target for _, target in self._targets.get(node, ()))]
            return (id(item) for item in found if isinstance(item, dict))

        return _components(self._nodes, following)


def _components(nodes: Iterable[int], following: Callable[[int], Iterator[int]]) -> dict[int, int]:
    """The strongly connected components of a graph (Tarjan 1972), without recursion: schemas may be deep."""
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    component: dict[int, int] = {}
    open_nodes: list[int] = []
    for root in nodes:
        if root in order:
            continue
        path = [(root, following(root))]
        order[root] = lowest[root] = len(order)
        open_nodes.append(root)
        while path:
            node, rest = path[-1]
            after = next(rest, None)
            if after is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    member = -1
                    while member != node:
                        member = open_nodes.pop()
                        component[member] = order[node]
            elif after not in order:
                order[after] = lowest[after] = len(order)
                open_nodes.append(after)
                path.append((after, following(after)))
            elif after not in component:
                lowest[node] = min(lowest[node], order[after])
    return component


def _children(node: JsonObject, keys: tuple[str, ...]) -> Iterator[Any]:
    """The schemas under some keys of a schema. What stands elsewhere (``default``, ``enum``) is data."""
    for key, value in node.items():
        if key not in keys:
            continue
        if key in BY_NAME and isinstance(value, dict):
            yield from value.values()
        elif key in LISTS and isinstance(value, list):
            yield from value
        elif key in SINGLE:
            yield value


def _target(schema: Any, reference: Any, anchors: dict[str, JsonObject]) -> Any:
    """The schema that a reference leads to, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    if reference in anchors:
        return anchors[reference]
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = schema
    for part in unquote(reference).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return None
    return found if isinstance(found, (dict, bool)) else None
