"""Tool executors: what runs the calls of a step.

A call that cannot be run (unknown tool, arguments that break the schema, a tool that fails) is a result with
``is_error``: the model reads the message and can do better in the next step.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from jsonschema import Draft202012Validator, SchemaError, ValidationError

from txagent_train.core.errors import DataError
from txagent_train.core.records import Json, ToolCall, ToolSpec, check_json
from txagent_train.data.schemas import schema_validator

_MESSAGE_LIMIT = 300
_PROBLEMS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What one call gave. ``tools_added`` are the tools that a retrieval call brings into the model's view.

    ``truncated`` says that ``content`` is only the beginning of what the tool returned.
    """

    content: Json
    is_error: bool = False
    tools_added: tuple[ToolSpec, ...] = ()
    truncated: bool = False


class ToolExecutor(Protocol):
    """Runs calls. ``call`` never raises for a call that the model got wrong: that is an outcome."""

    def specs(self) -> Sequence[ToolSpec]:
        """Every tool that can be called."""
        ...

    def call(self, call: ToolCall) -> ToolOutcome:
        """Run one call."""
        ...


ToolFunction: TypeAlias = Callable[..., "Json | ToolOutcome"]
"""Called with the arguments as keywords. Returns JSON, or a ToolOutcome where the tool adds tools."""


def error_outcome(message: str) -> ToolOutcome:
    """An error as the model reads it: ``{"error": message}``, the message cut to a readable length."""
    if len(message) > _MESSAGE_LIMIT:
        message = message[: _MESSAGE_LIMIT - 3] + "..."
    return ToolOutcome({"error": message}, is_error=True)


class PythonTools:
    """Tools that are Python functions of this process.

    Arguments are checked against the schema first. An argument that the schema does not list is refused unless
    the schema says ``additionalProperties``: the function could not take it.

    Args:
        specs: the tools, in the order in which they are listed.
        functions: the function of each tool, by tool name.
        max_result_chars: a result longer than this as JSON text is cut to it, and marked as truncated.

    Raises:
        DataError: a schema is not a valid JSON schema.
        ValueError: specs and functions do not name the same tools.
    """

    def __init__(
        self, specs: Sequence[ToolSpec], functions: Mapping[str, ToolFunction], *, max_result_chars: int = 32_000
    ) -> None:
        names = [spec.name for spec in specs]
        if len(set(names)) != len(names) or set(names) != set(functions):
            raise ValueError(f"specs name {sorted(names)}, functions name {sorted(functions)}")
        self._specs = tuple(specs)
        self._functions = dict(functions)
        self._validators = {spec.name: _validator(spec) for spec in specs}
        self._max_result_chars = max_result_chars

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def call(self, call: ToolCall) -> ToolOutcome:
        if call.name not in self._functions:
            close = difflib.get_close_matches(call.name, self._functions, n=3)
            hint = f" Did you mean: {', '.join(close)}?" if close else ""
            return error_outcome(f"There is no tool named {call.name}.{hint}")
        problems = sorted(self._validators[call.name].iter_errors(call.arguments), key=_place)
        if problems:
            return error_outcome(f"Invalid arguments for {call.name}: {_describe(problems)}")
        try:
            returned = self._functions[call.name](**call.arguments)
            outcome = returned if isinstance(returned, ToolOutcome) else ToolOutcome(returned)
            check_json(outcome.content, f"the result of {call.name}")
        except Exception as error:  # whatever a tool raises is the tool's answer; the loop must go on
            return error_outcome(f"{call.name} failed: {type(error).__name__}: {error}")
        return self._limited(outcome)

    def _limited(self, outcome: ToolOutcome) -> ToolOutcome:
        content = outcome.content
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        if len(text) <= self._max_result_chars:
            return outcome
        return ToolOutcome(text[: self._max_result_chars], outcome.is_error, outcome.tools_added, truncated=True)


def _validator(spec: ToolSpec) -> Draft202012Validator:
    try:
        return schema_validator(json.dumps({"additionalProperties": False, **spec.parameters}))
    except SchemaError as error:
        raise DataError(
            f"the parameters of tool {spec.name} are not a JSON schema: {error.message}", reason="invalid_tool_spec"
        ) from None


def _place(problem: ValidationError) -> str:
    return ".".join(str(part) for part in problem.absolute_path)


def _describe(problems: Sequence[ValidationError]) -> str:
    """The first few problems, each with the argument it is about."""
    parts = []
    for problem in problems[:_PROBLEMS_SHOWN]:
        place = _place(problem)
        parts.append(f"{place}: {problem.message}" if place else problem.message)
    more = len(problems) - _PROBLEMS_SHOWN
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")
