"""Tool specs from files: a list, one spec, a mapping of specs by name, JSON Lines, or a folder of such files.

Folders inside a folder are not read: real ones hold specs that were put aside. Name them too where they are wanted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txagent_train.core.codec import tool_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import ToolSpec
from txagent_train.data.reading import is_json_lines, read_document, read_jsonl
from txagent_train.data.toolspecs import AUTO, FORMATS, format_for
from txagent_train.data.toolspecs.guess import guess_spec_format, is_spec

WRAPPERS = ("tools", "functions")
"""Keys under which an object may hold the list: a request, or the answer of an MCP server."""
REWRITES = "rewrites"
"""The kind that a file of rewrites has in its header (data.rewrites)."""
_ABOUT_TOOLBOX = "toolbox_hash"
"""The key that only files about a toolbox have: rewrites and neighbours."""
ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst")
"""The files of a folder that are read."""
NAMED_BY = {"openai": "function", "biotool": "document", "json_schema": "title"}
"""The key that has the name of a tool in it, where that is not ``name``; a spec in a mapping may lack it."""


@dataclass(frozen=True, slots=True)
class PlacedSpec:
    """A spec and where it stands: its line in JSON Lines, else its place (from 1)."""

    spec: ToolSpec
    path: Path
    line: int


@dataclass(slots=True)
class SpecsRead:
    """What was read. ``formats`` counts the specs by format, ``repeated`` those that were there already, as they are.

    ``read`` is the number of all items: specs, repeated ones, and those whose fault was handed over; a file of a folder
    that cannot be used counts as one.
    """

    specs: list[PlacedSpec] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    read: int = 0


def read_specs(
    sources: Sequence[Path],
    format: str,
    *,
    on_fault: Callable[[DataError], None],
    on_duplicate: Callable[[DataError], None] | None = None,
) -> SpecsRead:
    """The tools of files and folders, in their order, each name once.

    Args:
        format: one of FORMATS, or AUTO, to be guessed file by file.
        on_fault: receives the fault of what is left out; it may raise it.
        on_duplicate: the same for a tool with the name of an earlier, different one; None: as ``on_fault``.

    Raises:
        DataError: a file that was named cannot be read, or its format cannot be told. A fault of a file that was found
            in a folder is handed over.
        UserError: there is no such format.
    """
    if format != AUTO:
        format_for(format)
    out = SpecsRead()
    seen: dict[str, PlacedSpec] = {}
    for path, is_named in _files(sources):
        try:
            items = _items(path)
            if not items:
                raise DataError("the file holds no tools", reason="no_tools", path=str(path))
            name = guess_spec_format([item.value for item in items], path) if format == AUTO else format
        except DataError as error:
            if is_named:
                raise
            out.read += 1
            on_fault(error)
            continue
        for item in items:
            out.read += 1
            try:
                placed = PlacedSpec(item.spec(name), path, item.line)
            except DataError as error:
                on_fault(error.at(path=str(path), line=item.line))
                continue
            first = seen.setdefault(placed.spec.name, placed)
            if first is placed:
                out.specs.append(placed)
                out.formats[name] += 1
            elif _text(first.spec) == _text(placed.spec):
                out.repeated += 1
            else:
                (on_duplicate or on_fault)(_duplicate(first, placed))
    return out


def _files(sources: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, each with whether it was named itself."""
    for source in sources:
        if not source.is_dir():
            yield source, True
            continue
        found = sorted(path for path in source.iterdir() if path.name.endswith(ENDINGS) and path.is_file())
        if not found:
            raise DataError("the folder holds no .json or .jsonl file", reason="no_tools", path=str(source))
        yield from ((path, False) for path in found)


@dataclass(frozen=True, slots=True)
class _Item:
    """What stands in the place of a spec; ``key`` is its name where the file is a mapping."""

    line: int
    value: Any
    key: str | None = None

    def spec(self, format: str) -> ToolSpec:
        """The tool that it is. Raises DataError: it is none of this format."""
        if not isinstance(self.value, dict):
            problem = f"a tool must be an object, not {type(self.value).__name__}"
            raise DataError(problem, reason="not_a_tool")
        value = self.value
        named_by = NAMED_BY.get(format, "name")
        if self.key is not None and named_by not in value:
            value = {named_by: self.key, **value}
        try:
            spec = FORMATS[format].read(value)
            _text(spec).encode("utf-8")
        except RecursionError:
            raise DataError("the tool is nested too deeply", reason="invalid_tool_spec") from None
        except UnicodeEncodeError:
            problem = "a text of the tool holds half of a surrogate pair, which is no character"
            raise DataError(problem, reason="lone_surrogate") from None
        if self.key is not None and spec.name != self.key:
            problem = f"the tool under the key {self.key!r} is named {spec.name}"
            raise DataError(problem, reason="two_names", fix="give it one name, or write the tools as a list")
        return spec


def _items(path: Path) -> list[_Item]:
    """What a file holds.

    Raises:
        DataError: the file cannot be read, is no list, object or JSON Lines, or is another file of this package.
    """
    if is_json_lines(path):
        lines = [_Item(line, value) for line, value in read_jsonl(path)]
        _check_tools(lines[0].value, path)
        return lines
    value = read_document(path)
    _check_tools(value, path)
    if isinstance(value, dict):
        wrapped = next((value[key] for key in WRAPPERS if isinstance(value.get(key), list)), None)
        if wrapped is None:
            if is_spec(value):
                return [_Item(1, value)]
            return [_Item(place, item, key) for place, (key, item) in enumerate(value.items(), 1)]
        value = wrapped
    if not isinstance(value, list):
        problem = f"the file holds a {type(value).__name__}, not a list or an object of tools"
        raise DataError(problem, reason="not_tools", path=str(path))
    return [_Item(place, item) for place, item in enumerate(value, 1)]


def _check_tools(first: Any, path: Path) -> None:
    """Refuse a file that this package wrote about tools: its records would be taken for tools."""
    if isinstance(first, dict) and _ABOUT_TOOLBOX in first:
        held = "rewrites of tools" if first.get("kind") == REWRITES else "what is known of tools (neighbours)"
        problem, fix = f"the file holds {held}, not tools", "name the toolbox, or what it was imported from"
        raise DataError(problem, reason="not_tools", path=str(path), fix=fix)


def _text(spec: ToolSpec) -> str:
    """All of a spec: equal where two are the same to the letter."""
    return json.dumps(tool_to_json(spec), ensure_ascii=False)


def _duplicate(first: PlacedSpec, second: PlacedSpec) -> DataError:
    where = f"{first.path}:{first.line}"
    return DataError(
        f"the tool {second.spec.name} differs from the one of the same name at {where}",
        reason="duplicate_tool",
        path=str(second.path),
        line=second.line,
        fix="rename or delete one of them, or keep the first (--duplicates first)",
    )
