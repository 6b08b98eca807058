"""Rewritten versions of tools: other names, descriptions and arguments for the same function.

The model must read what a tool does instead of knowing its name by heart, so each tool of a toolbox gets versions
that say the same in other words (paper 4.2). A rewrite file is JSON Lines: a header, then one record per tool and
version. Types, required, enums, defaults and what is nested in an argument stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolCall, ToolSpec
from txagent_train.data.reading import read_jsonl
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.writing import jsonl_writer

KIND = "rewrites"
_VERSION = 1
_HEADER = ("kind", "version", "toolbox_hash", "held_out_tools", "writer")
_RECORD = ("tool", "version", "name", "description", "arguments", "held_out")
_NOT_REWRITES = "name the file that tools rewrite wrote"


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
        if not self.name.strip() or not all(argument.name.strip() for argument in self.arguments.values()):
            raise DataError(f"version {self.version} of tool {self.tool} has an empty name", reason="invalid_rewrite")
        self._check_one_to_one(self.arguments)

    def spec(self, original: ToolSpec) -> ToolSpec:
        """The tool as this version shows it. The order of the arguments and all that is no text is kept.

        ``origin`` is empty: what the original was read from has its name.

        Raises:
            DataError: an argument gets the name of one that the version does not list.
        """
        assert original.name == self.tool
        properties = original.parameters.get("properties")
        self._check_one_to_one(properties if isinstance(properties, dict) else {})
        parameters = self._schema(original.parameters)
        for name, argument in self.arguments.items():
            if not isinstance(properties, dict) or name not in properties:
                problem = f"version {self.version} of tool {self.tool} rewrites {name!r}, which the tool does not take"
                raise DataError(problem, reason="invalid_rewrite", fix="make the rewrites anew from this toolbox")
            shown = parameters["properties"][argument.name]
            if isinstance(shown, dict) and shown.get("description", "") != argument.description:
                parameters["properties"][argument.name] = shown | {"description": argument.description}
        return ToolSpec(self.name, self.description, parameters)

    def call(self, call: ToolCall) -> ToolCall:
        """A call of the original as a call of this version; arguments that the version does not list are kept.

        Raises:
            DataError: such an argument has the new name of another, so that the way back would be lost.
        """
        assert call.name == self.tool
        names = {old: argument.name for old, argument in self.arguments.items()}
        return ToolCall(self.name, self._renamed(call.arguments, names))

    def original_call(self, call: ToolCall) -> ToolCall:
        """The inverse of ``call``; raises likewise."""
        assert call.name == self.name
        names = {argument.name: old for old, argument in self.arguments.items()}
        return ToolCall(self.tool, self._renamed(call.arguments, names))

    def _renamed(self, arguments: JsonObject, names: Mapping[str, str]) -> JsonObject:
        taken = set(names.values())
        for name in arguments:
            if name not in names and name in taken:
                problem = f"the call to {self.tool} has the extra argument {name!r}, a name that another one gets"
                raise DataError(problem, reason="argument_collision")
        return {names.get(name, name): value for name, value in arguments.items()}

    def _check_one_to_one(self, properties: Mapping[str, object]) -> None:
        names = [argument.name for argument in self.arguments.values()]
        names += [name for name in properties if name not in self.arguments]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            problem = f"version {self.version} of tool {self.tool} has two arguments named {twice!r}"
            raise DataError(problem, reason="invalid_rewrite")

    def _new_name(self, name: str) -> str:
        return self.arguments[name].name if name in self.arguments else name

    def _schema(self, schema: Any) -> Any:
        """A schema of the arguments object itself, with its properties renamed wherever it names them."""
        if isinstance(schema, list):
            return [self._schema(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        return {key: self._keyword(key, value) for key, value in schema.items()}

    def _keyword(self, key: str, value: Any) -> Any:
        if key in _SAME_OBJECT:
            return self._schema(value)
        if key == "required" and isinstance(value, list):
            return self._names(value)
        if key in _EXAMPLES:
            items = value if isinstance(value, list) else [value]
            renamed = [self._by_name(item) if isinstance(item, dict) else item for item in items]
            return renamed if isinstance(value, list) else renamed[0]
        if key in ("properties", "dependentRequired", "dependentSchemas") and isinstance(value, dict):
            inner = {"dependentRequired": self._names, "dependentSchemas": self._schema}.get(key, self._references)
            return self._by_name({name: inner(item) for name, item in value.items()})
        return self._pointer(value) if key == "$ref" else self._references(value)

    def _names(self, names: Any) -> Any:
        if not isinstance(names, list):
            return names
        return [self._new_name(name) if isinstance(name, str) else name for name in names]

    def _by_name(self, value: JsonObject) -> JsonObject:
        return {self._new_name(name): item for name, item in value.items()}

    def _references(self, value: Any) -> Any:
        """A schema of something else, with every ``$ref`` to a property of the tool pointed at its new name."""
        if isinstance(value, list):
            return [self._references(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: self._pointer(item) if key == "$ref" else self._references(item) for key, item in value.items()}

    def _pointer(self, pointer: Any) -> Any:
        if not isinstance(pointer, str) or not pointer.startswith(_POINTER):
            return pointer
        name, slash, rest = pointer.removeprefix(_POINTER).partition("/")
        plain = name.replace("~1", "/").replace("~0", "~")
        escaped = self._new_name(plain).replace("~", "~0").replace("/", "~1")
        return f"{_POINTER}{escaped}{slash}{rest}"

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


_SAME_OBJECT = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keys whose schemas are about the same object, and so name its properties too."""
_EXAMPLES = ("default", "const", "enum", "example", "examples")
"""Keys that hold whole arguments objects, or lists of them."""
_POINTER = "#/properties/"


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

    def __post_init__(self) -> None:
        for tool, versions in self.by_tool.items():
            numbers = [rewrite.version for rewrite in versions]
            if len(set(numbers)) != len(numbers):
                raise DataError(f"tool {tool} has two versions of the same number", reason="invalid_rewrite")
            if tool in self.held_out_tools and not all(rewrite.held_out for rewrite in versions):
                problem = f"tool {tool} is held out of training, but has a version that is not"
                raise DataError(problem, reason="invalid_rewrite")

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
        """Refuse a toolbox other than the one that was rewritten.

        Raises:
            DataError: reason ``other_toolbox``.
        """
        if self.toolbox_hash != toolbox.hash:
            unknown = sorted(tool for tool in self.by_tool if tool not in toolbox.by_name)
            detail = f"; it lacks {unknown[0]}" if unknown else "; its descriptions or parameters differ"
            problem = f"these are rewrites for another toolbox{detail}"
            fix = "name the toolbox that was rewritten, or run tools rewrite on this one"
            raise DataError(problem, reason="other_toolbox", fix=fix)

    def write(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the file; raises as jsonl_writer."""
        header = {
            "kind": KIND,
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
            DataError: it cannot be read or is no such file; names file and line.
        """
        records = read_jsonl(path)
        line, header = next(records, (1, {}))
        by_tool: dict[str, list[ToolRewrite]] = {}
        try:
            tools, writer = _read_header(header)
            for line, record in records:  # noqa: B007 - an error names it
                rewrite = ToolRewrite.from_json(record)
                by_tool.setdefault(rewrite.tool, []).append(rewrite)
        except DataError as error:
            raise error.at(path=str(path), line=line) from None
        try:
            versions = {tool: tuple(rewrites) for tool, rewrites in by_tool.items()}
            return cls(header["toolbox_hash"], tools, versions, writer)
        except DataError as error:
            raise error.at(path=str(path)) from None


def _read_header(header: JsonObject) -> tuple[frozenset[str], JsonObject]:
    if header.get("kind") != KIND:
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
