"""Tools as a result lists them, in whatever form: read, pruned, and written back as they came.

["a", "b"]   [{"name": "a", ...}]   [{"tool": "a"}]   [["a", 0.9]]   {"a": {...}}   {"tools": [...]}
the same as JSON text or as a Python literal, whole or inside another one
"Found: a, b."          names with commas between them
"1. a: what it does"    one tool a line
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from txagent_train.core.records import JSON_DEPTH
from txagent_train.data.strict_json import strict_loads

SCHEMA_KEYS = ("parameters", "parameter", "input_schema", "inputSchema")
"""Keys under which a spec has its parameters."""
Gone: TypeAlias = Callable[[str], bool]
"""Whether the tool of this name is to be taken out."""
_NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "id")
"""Keys under which an object says which tool it is about, or holds the object that says so."""
_STYLES: tuple[dict[str, Any], ...] = tuple(
    {"ensure_ascii": ascii_only, "separators": separators, "indent": indent}
    for indent, separators in ((None, None), (None, (",", ":")), (2, None), (4, None))
    for ascii_only in (True, False)
)
_LONGEST_LITERAL = 100_000
"""Characters; Python's parser is slow, and its literals are rare."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A value that was given as text, and how: JSON, or a Python literal (whose tuples are kept)."""

    value: Any
    text: str
    is_json: bool

    def pack(self, value: Any) -> str:
        """Another value in the same form; of white space, what ``json.dumps`` can write is kept."""
        core = self.text.strip()
        before, after = self.text.split(core, 1)
        return before + (json.dumps(value, **self._style(core)) if self.is_json else repr(value)) + after

    def _style(self, core: str) -> dict[str, Any]:
        exact = (style for style in _STYLES if json.dumps(self.value, **style) == core)
        return next(exact, {"ensure_ascii": core.isascii()})


@lru_cache(maxsize=256)  # what Tool_RAG returned is read anew for each thing that is done with it
def unpacked(text: str) -> Packed | None:
    """What a text holds as JSON or as a Python literal; None where it is only text.

    The value is shared, so nobody may change it.
    """
    core = text.strip()
    if not core.startswith(("[", "{", "(", '"')):
        return None
    try:
        value, is_json = strict_loads(core), True
    except ValueError:
        value, is_json = _literal(core), False
    return Packed(value, text, is_json) if _is_like_json(value) else None


def _literal(text: str) -> Any:
    """The list, tuple or object that a text holds as a Python literal; None where it is none."""
    if "'" not in text or len(text) > _LONGEST_LITERAL:  # Python's quotes: what has others is JSON, though not sound
        return None
    try:
        with warnings.catch_warnings():  # "\d" is no escape, Python says, but reads it
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, (list, tuple, dict)) else None


def _is_like_json(value: Any, depth: int = 0) -> bool:
    """Whether a value is one that a record could hold (core.records.check_json), or a tuple in place of a list."""
    if isinstance(value, (list, tuple, dict)) and depth < JSON_DEPTH:
        keys, items = (value.keys(), value.values()) if isinstance(value, dict) else ((), value)
        return all(isinstance(key, str) for key in keys) and all(_is_like_json(item, depth + 1) for item in items)
    return (
        isinstance(value, (bool, int, str))
        or (isinstance(value, float) and math.isfinite(value))
        or (value is None and depth > 0)
    )


def told_texts(value: Any) -> Iterator[str]:
    """Every text and key of a value, those too that stand packed in a text."""
    if isinstance(value, str):
        packed = unpacked(value)
        if packed is None:
            yield value
        else:
            yield from told_texts(packed.value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from told_texts(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from told_texts(item)


def name_of(entry: Any) -> str | None:
    """The tool that an entry of a list is about: a name, "name: what it does", an object, a name with its score."""
    if isinstance(entry, str):
        packed = unpacked(entry)
        head = _HEAD.match(entry)
        return name_of(packed.value) if packed is not None else head["name"] if head is not None else None
    if isinstance(entry, dict):
        named = (name_of(entry[key]) for key in _NAME_KEYS if isinstance(entry.get(key), (str, dict)))
        return next((name for name in named if name is not None), None)
    return entry[0] if _is_record(entry) else None


def _is_record(entry: Any) -> bool:
    """Whether a list is one entry, a name and what belongs to it, and not a list of names."""
    if not isinstance(entry, (list, tuple)) or len(entry) < 2 or not isinstance(entry[0], str):
        return False
    return not any(isinstance(other, str) and len(other.split()) == 1 for other in entry[1:])


def listed_names(value: Any) -> Iterator[str]:
    """What may be the name of a tool that is listed; other texts are among it."""
    if isinstance(value, str):
        packed = unpacked(value)
        if packed is not None:
            yield from listed_names(packed.value)
            return
        for line in value.splitlines():
            heads = (_HEAD.match(line), *map(_ITEM.fullmatch, line.split(",")))
            yield from (head["name"] for head in heads if head is not None)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from listed_names(item)
    elif isinstance(value, dict):
        yield from value
        is_tool = name_of(value) is not None
        for key, item in value.items():
            if key in _NAME_KEYS or not (key in SCHEMA_KEYS or (is_tool and _is_text(item))):
                yield from listed_names(item)


def without(value: Any, gone: Gone) -> Any:
    """A value less the entries of lists, and the keys of objects, that are tools to be taken out.

    A tool that stays is left as it is, whatever its description and its parameters say.
    """
    if isinstance(value, str):
        packed = unpacked(value)
        if packed is None:
            return _text_without(value, gone)
        rest = without(packed.value, gone)
        return value if rest == packed.value else packed.pack(rest)
    if isinstance(value, (list, tuple)):
        kept = [(item, without(item, gone)) for item in value if not gone(name_of(item) or "")]
        return type(value)(rest for item, rest in kept if rest != {} or item == {})
    if not isinstance(value, dict):
        return value
    is_tool = name_of(value) is not None
    return {
        key: item if key in SCHEMA_KEYS or (is_tool and _is_text(item)) else without(item, gone)
        for key, item in value.items()
        if not gone(key)
    }


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and unpacked(value) is None


# ---- lists in running text ----

_HEAD = re.compile(
    r"(?P<bullet>\s*(?:(?P<number>\d+)[.)]|[-*\u2022])\s+)?(?P<quote>[\"'`*]*)(?P<name>\S.*?)(?P=quote)"
    r"(?:\s*$|\s*[:(|]|\s+[-\u2013\u2014]\s)"
)
"""A line that begins with the name of a tool, behind it nothing, or what the tool does."""
_ITEM = re.compile(
    r"(?P<lead>(?:[^\n]*:)?\s*)(?P<quote>[\"'`]?)(?P<name>[^\s:](?:[^:]*[^\s:.])?)(?P=quote)(?P<tail>\.?\s*)"
)
"""A name between commas; before the first may stand what they are."""


def _text_without(text: str, gone: Gone) -> str:
    lines = text.splitlines(keepends=True)
    starts = _starts(lines)
    listed = sum(start is not None for start in starts) > 1
    out: list[str] = []
    dropping, number = False, 0
    for line, start in zip(lines, starts, strict=True):
        if listed and start is not None:
            dropping = gone(start["name"])
            if start["number"] and not dropping:
                number = number + 1 if number else int(start["number"])
                line = line.replace(start["number"], str(number), 1)
        elif not line.strip():
            dropping = False
        if not dropping:
            out.append(_line_without(line, gone))
    return "".join(out)


def _starts(lines: Sequence[str]) -> list[re.Match[str] | None]:
    """The lines with which an entry begins: those with bullets; without bullets, "name" or "name: what it does"."""
    heads = [_HEAD.match(line) for line in lines]
    bulleted = any(head is not None and head["bullet"] for head in heads)
    return [
        head if head is not None and (head["bullet"] if bulleted else " " not in head["name"]) else None
        for head in heads
    ]


def _line_without(line: str, gone: Gone) -> str:
    """A line without those names in it that stand between commas."""
    parts = re.split(r"(,\s*)", line)
    items = [_ITEM.fullmatch(part) for part in parts[::2]]
    drops = [item is not None and gone(item["name"]) for item in items]
    if len(items) == 1 or not any(drops):
        return line
    first, last = items[0], items[-1]
    kept = [place for place, drop in enumerate(drops) if not drop]
    rest = "".join(parts[2 * place - 1] * (place != kept[0]) + parts[2 * place] for place in kept)
    before = first["lead"] if drops[0] and first is not None else ""
    return before + rest + (last["tail"] if drops[-1] and last is not None else "")
