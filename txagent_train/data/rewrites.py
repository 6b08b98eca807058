"""Rewritten versions of tools: other names, descriptions and arguments for the same function.

The model must read what a tool does instead of knowing its name by heart, so each tool of a toolbox gets versions
that say the same in other words (paper 4.2). A rewrite file is JSON Lines: a header, then one record per tool and
version. Types, required, enums, defaults and what is nested in an argument stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolCall, ToolSpec
from txagent_train.data.mentions import SPECIAL_TOOLS
from txagent_train.data.reading import read_jsonl
from txagent_train.data.schema_names import ArgumentNames, rename_properties
from txagent_train.data.spelling import MAX_NAME_LENGTH, is_valid_name, text_fault
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolspecs.reading import REWRITES
from txagent_train.data.writing import jsonl_writer

_VERSION = 1
_HEADER = ("kind", "version", "toolbox_hash", "held_out_tools", "writer")
_RECORD = ("tool", "version", "name", "description", "arguments", "held_out")
_NOT_REWRITES = "name the file that tools rewrite wrote"
_ANEW = "make the rewrites anew from this toolbox (tools rewrite)"
_VALID = f"a name is of ASCII letters, digits and underscores, no keyword, and at most {MAX_NAME_LENGTH} characters"
_SPECIAL = frozenset(name.casefold() for name in SPECIAL_TOOLS)


@dataclass(frozen=True, slots=True)
class ArgumentRewrite:
    """The other name and description of one argument."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class ToolRewrite:
    """One version of a tool. ``arguments`` is by original name of the top-level properties.

    ``held_out`` versions are for evaluation only. An argument that is not listed stays as it is.

    Raises:
        DataError: two arguments have one name, or a name is empty.
    """

    tool: str
    version: int
    name: str
    description: str
    arguments: Mapping[str, ArgumentRewrite]
    held_out: bool = False

    def __post_init__(self) -> None:
        # A tool may have an argument without a name, and a version may keep it.
        if not self.name.strip() or not all(new.name.strip() or new.name == old for old, new in self.arguments.items()):
            raise DataError(f"{self._title} has an empty name", reason="invalid_rewrite")
        self._check_one_to_one(())

    def spec(self, original: ToolSpec) -> ToolSpec:
        """The tool as this version shows it. The order of the arguments and all that is no text is kept.

        ``origin`` is empty: what the original was read from has its name.

        Raises:
            DataError: as check_arguments.
        """
        assert original.name == self.tool
        self.check_arguments(ArgumentNames.of(original.parameters))
        parameters = rename_properties(original.parameters, self._names)
        for argument in self.arguments.values():
            shown = parameters["properties"][argument.name]
            if isinstance(shown, dict) and shown.get("description", "") != argument.description:
                parameters["properties"][argument.name] = shown | {"description": argument.description}
        return ToolSpec(self.name, self.description, parameters)

    def check_arguments(self, names: ArgumentNames) -> None:
        """Check the version against the arguments of its tool.

        Raises:
            DataError: it lists an argument that the tool does not take, gives one the name of another, or changes names
                that the tool's schema binds.
        """
        unknown = next((name for name in self.arguments if name not in names.own), None)
        if unknown is not None:
            raise self._fault(f"rewrites {unknown!r}, which the tool does not take")
        self._check_one_to_one(names.known)
        if names.fixed and any(old != new for old, new in self._names.items()):
            raise self._fault(f"renames arguments, but its schema keeps their names: {names.fixed}")

    def check_name(self, taken: Mapping[str, str]) -> None:
        """Raise DataError where the version is named like a tool; ``taken`` has the tools' names by the folded ones."""
        other = taken.get(self.name.casefold())
        if other is not None:
            raise self._fault(f"has the name of a tool of the toolbox, {other}")

    def call(self, call: ToolCall) -> ToolCall:
        """A call of the original as a call of this version; arguments that the version does not list are kept.

        Raises:
            DataError: such an argument has the new name of another, so that the way back would be lost.
        """
        assert call.name == self.tool
        return ToolCall(self.name, self._renamed(call.arguments, self._names))

    def original_call(self, call: ToolCall) -> ToolCall:
        """The inverse of ``call``; raises likewise."""
        assert call.name == self.name
        names = {new: old for old, new in self._names.items()}
        return ToolCall(self.tool, self._renamed(call.arguments, names))

    def _renamed(self, arguments: JsonObject, names: Mapping[str, str]) -> JsonObject:
        taken = set(names.values())
        for name in arguments:
            if name not in names and name in taken:
                problem = f"the call to {self.tool} has the extra argument {name!r}, a name that another one gets"
                raise DataError(problem, reason="argument_collision")
        return {names.get(name, name): value for name, value in arguments.items()}

    def _check_one_to_one(self, others: Iterable[str]) -> None:
        names = [argument.name for argument in self.arguments.values()]
        names += [name for name in others if name not in self.arguments]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{self._title} has two arguments named {twice!r}", reason="invalid_rewrite")

    @property
    def _names(self) -> dict[str, str]:
        return {old: argument.name for old, argument in self.arguments.items()}

    @property
    def _title(self) -> str:
        return f"version {self.version} of tool {self.tool}"

    def check_spelling(self) -> None:
        """Check what no toolbox is needed for: names that every client takes, and texts that every file can hold.

        Raises:
            DataError: says what is wrong.
        """
        texts = [self.name, self.description]
        for old, argument in self.arguments.items():
            texts += [argument.name, argument.description]
            if argument.name != old and not is_valid_name(argument.name):
                raise self._fault(f"names an argument {argument.name!a}: {_VALID}")
        fault = next(filter(None, map(text_fault, texts)), "")
        if fault:
            raise self._fault(f"holds {fault}")
        if not is_valid_name(self.name):
            raise self._fault(f"is named {self.name!a}: {_VALID}")
        if self.tool in SPECIAL_TOOLS or self.name.casefold() in _SPECIAL:
            raise self._fault(f"is named {self.name}, but tools of the agent's loop keep their names")
        if self.version < 1:
            raise self._fault("has a number below 1")

    def _fault(self, problem: str) -> DataError:
        return DataError(f"{self._title} {problem}", reason="invalid_rewrite", fix=_ANEW)

    def to_json(self) -> JsonObject:
        """The record of the file."""
        arguments = {
            old: {"name": argument.name, "description": argument.description}
            for old, argument in self.arguments.items()
        }
        return {
            "tool": self.tool,
            "version": self.version,
            "name": self.name,
            "description": self.description,
            "arguments": arguments,
            "held_out": self.held_out,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> ToolRewrite:
        """The inverse of to_json. Raises DataError: a key is missing, unknown or of another type."""
        _check_keys(value, _RECORD, "a rewrite")
        arguments = value["arguments"]
        texts = (value["tool"], value["name"], value["description"])
        if not all(isinstance(text, str) for text in texts) or not isinstance(arguments, dict):
            problem = "tool, name and description of a rewrite must be text, arguments an object"
            raise DataError(problem, reason="wrong_type")
        version, held_out = value["version"], value["held_out"]
        if isinstance(version, bool) or not isinstance(version, int) or not isinstance(held_out, bool):
            raise DataError("the version must be an integer and held_out true or false", reason="wrong_type")
        read = {name: _argument(name, item) for name, item in arguments.items()}
        return cls(value["tool"], version, value["name"], value["description"], read, held_out)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a version was read."""

    path: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class RewriteSet:
    """The rewrites of a toolbox. ``held_out_tools`` are tools that training must not see in any version.

    Raises:
        DataError: two versions have one number, or a held-out tool has a version for training.
    """

    toolbox_hash: str
    held_out_tools: frozenset[str]
    by_tool: Mapping[str, tuple[ToolRewrite, ...]]
    writer: JsonObject = field(default_factory=dict)
    """How they were made: the name of the writer and its settings."""
    source: Place = field(default=Place(), repr=False, compare=False)
    """Where the header was read."""
    places: Mapping[tuple[str, int], Place] = field(default_factory=dict, repr=False, compare=False)
    """Where a version was read, by tool and number."""

    def __post_init__(self) -> None:
        for tool, versions in self.by_tool.items():
            numbers = [rewrite.version for rewrite in versions]
            if len(set(numbers)) != len(numbers):
                raise DataError(f"tool {tool} has two versions of the same number", reason="invalid_rewrite")
            for rewrite in versions:
                _check_held_out(rewrite, self.held_out_tools)

    def training(self, tool: str) -> tuple[ToolRewrite, ...]:
        """The versions of a tool that training may show: none of a held-out tool, nor of one that has none."""
        return tuple(rewrite for rewrite in self.by_tool.get(tool, ()) if not rewrite.held_out)

    def for_evaluation(self) -> RewriteSet:
        """The versions that training must not show of the tools that it may, as a set from which one can be chosen."""
        by_tool = {
            tool: tuple(replace(rewrite, held_out=False) for rewrite in versions if rewrite.held_out)
            for tool, versions in self.by_tool.items()
            if tool not in self.held_out_tools
        }
        return RewriteSet(
            self.toolbox_hash, frozenset(), {tool: found for tool, found in by_tool.items() if found}, self.writer
        )

    def check_fits(self, toolbox: Toolbox) -> None:
        """Refuse a toolbox other than the one that was rewritten, and versions that cannot be of it.

        Raises:
            DataError: reason ``other_toolbox``; or ``invalid_rewrite`` for a version that has the name of a tool, or an
                argument that its tool does not take, and for a tool that is held out and not there.
        """
        unknown = sorted({*self.by_tool, *self.held_out_tools} - toolbox.by_name.keys())
        if self.toolbox_hash != toolbox.hash:
            detail = f"; it lacks {unknown[0]}" if unknown else "; its descriptions or parameters differ"
            problem = f"these are rewrites for another toolbox{detail}"
            fix = "name the toolbox that was rewritten, or run tools rewrite on this one"
            raise DataError(problem, reason="other_toolbox", fix=fix).at(path=self.source.path)
        if unknown:
            what = "rewritten" if unknown[0] in self.by_tool else "held out"
            place = self._place(unknown[0], next((item.version for item in self.by_tool.get(unknown[0], ())), 0))
            problem = f"{unknown[0]} is {what}, but the toolbox has no such tool"
            raise DataError(problem, reason="invalid_rewrite", fix=_ANEW).at(path=place.path, line=place.line)
        taken = {name.casefold(): name for name in toolbox.by_name}
        for tool, versions in self.by_tool.items():
            names = ArgumentNames.of(toolbox.by_name[tool].parameters)
            for rewrite in versions:
                try:
                    rewrite.check_name(taken)
                    rewrite.check_arguments(names)
                except DataError as fault:
                    place = self._place(tool, rewrite.version)
                    raise fault.at(path=place.path, line=place.line) from None

    def _place(self, tool: str, version: int) -> Place:
        return self.places.get((tool, version), self.source)

    def write(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the file; raises as jsonl_writer."""
        header = {
            "kind": REWRITES,
            "version": _VERSION,
            "toolbox_hash": self.toolbox_hash,
            "held_out_tools": sorted(self.held_out_tools),
            "writer": self.writer,
        }
        with jsonl_writer(path, overwrite=overwrite) as out:
            out.write(header)
            for versions in self.by_tool.values():
                for rewrite in versions:
                    out.write(rewrite.to_json())

    @classmethod
    def read(cls, path: Path) -> RewriteSet:
        """Read what ``write`` wrote.

        Raises:
            DataError: it cannot be read, is no such file, holds no version, or one that no file should hold (a name
                that two versions have, or that not every client takes); names file and line.
        """
        records = read_jsonl(path)
        line, header = next(records, (1, {}))
        source = Place(str(path), line)
        by_tool: dict[str, list[ToolRewrite]] = {}
        places: dict[tuple[str, int], Place] = {}
        lines_of_names: dict[str, int] = {}
        try:
            tools, writer = _read_header(header)
            for line, record in records:
                rewrite = ToolRewrite.from_json(record)
                rewrite.check_spelling()
                _check_held_out(rewrite, tools)
                _check_new(rewrite, line, lines_of_names, places)
                by_tool.setdefault(rewrite.tool, []).append(rewrite)
                places[rewrite.tool, rewrite.version] = Place(str(path), line)
        except DataError as error:
            raise error.at(path=str(path), line=line) from None
        if not by_tool:
            raise DataError("the file holds no version of any tool", reason="no_rewrites", path=str(path), fix=_ANEW)
        versions = {tool: tuple(rewrites) for tool, rewrites in by_tool.items()}
        return cls(header["toolbox_hash"], tools, versions, writer, source, places)


def _check_held_out(rewrite: ToolRewrite, tools: frozenset[str]) -> None:
    if rewrite.tool in tools and not rewrite.held_out:
        problem = f"tool {rewrite.tool} is held out of training, but its version {rewrite.version} is not"
        raise DataError(problem, reason="invalid_rewrite")


def _check_new(
    rewrite: ToolRewrite, line: int, lines_of_names: dict[str, int], places: Mapping[tuple[str, int], Place]
) -> None:
    if (rewrite.tool, rewrite.version) in places:
        first = places[rewrite.tool, rewrite.version].line
        problem = (
            f"tool {rewrite.tool} has two versions of the same number, {rewrite.version}; the first is in line {first}"
        )
        raise DataError(problem, reason="invalid_rewrite", fix=_ANEW)
    # Two names that differ in capitals alone are one to some servers.
    first = lines_of_names.setdefault(rewrite.name.casefold(), line)
    if first != line:
        problem = f"version {rewrite.version} of tool {rewrite.tool} has the name of the version in line {first}"
        raise DataError(f"{problem}, {rewrite.name}", reason="invalid_rewrite", fix=_ANEW)


def _read_header(header: JsonObject) -> tuple[frozenset[str], JsonObject]:
    if header.get("kind") != REWRITES:
        raise DataError("this is no file of rewrites", reason="invalid_rewrite", fix=_NOT_REWRITES)
    if header.get("version") != _VERSION:
        problem = f"the rewrites have version {header.get('version')!r}; this is version {_VERSION}"
        raise DataError(problem, reason="invalid_rewrite", fix="make them again with this version")
    _check_keys(header, _HEADER, "the header")
    tools, writer = header["held_out_tools"], header["writer"]
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise DataError("held_out_tools must be a list of names", reason="wrong_type")
    if not isinstance(header["toolbox_hash"], str) or not isinstance(writer, dict):
        raise DataError("toolbox_hash must be text, and writer an object", reason="wrong_type")
    return frozenset(tools), writer


def _argument(name: str, value: object) -> ArgumentRewrite:
    if not isinstance(value, dict):
        raise DataError(f"the rewrite of argument {name} must be an object", reason="wrong_type")
    _check_keys(value, ("name", "description"), f"the rewrite of argument {name}")
    if not isinstance(value["name"], str) or not isinstance(value["description"], str):
        raise DataError(f"name and description of argument {name} must be text", reason="wrong_type")
    return ArgumentRewrite(value["name"], value["description"])


def _check_keys(value: JsonObject, wanted: tuple[str, ...], what: str) -> None:
    missing, unknown = [key for key in wanted if key not in value], [key for key in value if key not in wanted]
    if missing or unknown:
        problem = f"{what} lacks {missing[0]!r}" if missing else f"{what} has the unknown key {unknown[0]!r}"
        raise DataError(problem, reason="missing_key" if missing else "unknown_key", fix=_NOT_REWRITES)
