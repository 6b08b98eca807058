"""Traces as JSON objects: the native format, one object a line in a ``.jsonl`` file.

``trace_from_json(trace_to_json(t)) == t`` for every trace. Fields at their default are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace, UserMessage

Record = ToolSpec | ToolCall | ToolResult | UserMessage | Step | Trace
RecordType = TypeVar("RecordType", ToolSpec, ToolCall, ToolResult, UserMessage, Step, Trace)


def _to_json(value: Any) -> Any:
    if isinstance(value, StepStatus):
        return str(value)
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, UserMessage):
        return {"user": value.content}
    if isinstance(value, Step):
        return {"step": _fields_to_json(value)}
    if isinstance(value, (ToolSpec, ToolCall, ToolResult, Trace)):
        return _fields_to_json(value)
    return value


def _fields_to_json(record: Any) -> JsonObject:
    out: JsonObject = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if item.default_factory is not MISSING:
            default: Any = item.default_factory()
        else:
            default = item.default
        if default is MISSING or value != default or type(value) is not type(default):
            out[item.name] = _to_json(value)
    return out


def tool_to_json(spec: ToolSpec) -> JsonObject:
    """A tool spec as a JSON object."""
    return _fields_to_json(spec)


def trace_to_json(trace: Trace) -> JsonObject:
    """A trace as a JSON object of the native format."""
    return _fields_to_json(trace)


def _object(value: object, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise DataError(f"{what} must be an object, not {type(value).__name__}", reason="wrong_type")
    return value


def _build(kind: type[RecordType], value: object, what: str, **convert: Callable[[Any], Any]) -> RecordType:
    """Build a record from its fields; unknown and missing keys are errors, never ignored."""
    data = _object(value, what)
    known = {item.name: item for item in fields(kind)}
    for key in data:
        if key not in known:
            raise DataError(
                f"{what} has the unknown key {key!r}", reason="unknown_key", fix=f"known: {', '.join(known)}"
            )
    for name, item in known.items():
        if item.default is MISSING and item.default_factory is MISSING and name not in data:
            raise DataError(f"{what} lacks the key {name!r}", reason="missing_key")
    return kind(**{key: convert[key](item) if key in convert else item for key, item in data.items()})


def _same(value: Any) -> Any:
    return value


def _many(build: Callable[[Any], Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise DataError(f"{what} must be a list, not {type(value).__name__}", reason="wrong_type")
        return tuple(build(item) for item in value)

    return convert


def tool_from_json(value: object) -> ToolSpec:
    """The inverse of tool_to_json."""
    return _build(ToolSpec, value, "a tool")


def _call_from_json(value: object) -> ToolCall:
    return _build(ToolCall, value, "a call")


def _result_from_json(value: object) -> ToolResult:
    return _build(ToolResult, value, "a result", sub_trace=lambda item: None if item is None else trace_from_json(item))


def _status_from_json(value: object) -> StepStatus:
    try:
        return StepStatus(str(value))
    except ValueError:
        known = ", ".join(StepStatus)
        raise DataError(f"{value!r} is not a step status", reason="wrong_type", fix=f"one of: {known}") from None


def _step_from_json(value: object) -> Step:
    return _build(
        Step,
        value,
        "a step",
        calls=_many(_call_from_json, "calls"),
        results=_many(_result_from_json, "results"),
        tools_added=_many(tool_from_json, "tools_added"),
        status=_status_from_json,
        weight=weight_of,
    )


def weight_of(value: object) -> float:
    """The weight that a record holds. Raises DataError (reason ``invalid_weight``) for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"a weight must be a number, not {value!r}", reason="invalid_weight")
    try:
        return float(value)
    except OverflowError:
        raise DataError("a weight is too large for a number", reason="invalid_weight") from None


def _turns_from_json(value: object) -> tuple[UserMessage | Step, ...]:
    if not isinstance(value, list):
        raise DataError("turns must be a list", reason="wrong_type")
    turns: list[UserMessage | Step] = []
    steps = 0
    for item in value:
        data = _object(item, "a turn")
        try:
            if set(data) == {"user"}:
                turns.append(UserMessage(data["user"]))
            elif set(data) == {"step"}:
                turns.append(_step_from_json(data["step"]))
                steps += 1
            else:
                raise DataError(
                    f"a turn has the keys {sorted(data)}", reason="unknown_turn", fix="use 'user' or 'step'"
                )
        except DataError as error:
            raise DataError(error.problem, reason=error.reason, step=steps, fix=error.fix) from None
    return tuple(turns)


def trace_from_json(value: object) -> Trace:
    """The inverse of trace_to_json.

    Raises:
        DataError: names the trace, and the step (from 0) where there is one.
    """
    data = _object(value, "a trace")
    try:
        return _build(
            Trace,
            data,
            "a trace",
            turns=_turns_from_json,
            initial_tools=_many(tool_from_json, "initial_tools"),
            entities=_many(_same, "entities"),
        )
    except DataError as error:
        raise error.at(trace_id=str(data.get("id", ""))) from None
