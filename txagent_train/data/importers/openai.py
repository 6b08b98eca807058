"""The OpenAI format: ``messages`` with ``tool_calls``, and ``tools``.

    {"id": ..., "messages": [{"role": "user", "content": ...}, ...], "tools": [{"type": "function", ...}]}

What a record must keep to:

- A tool message answers a call of the assistant message before it: the one with its id, or the first one that is
  unanswered where ids are missing. An id may come back in a later message.
- ``content`` is text, null, or a list of text parts, which are joined with nothing between. Text of a tool stays
  text, also where it is JSON. A tool message may hold a JSON object as it is.
- A last assistant message without calls is the answer of the trace; so is one that calls nothing but ``Finish``, the
  word of a wire format for the end. ``[FinalAnswer]`` in it parts thought and answer. ``Finish`` is no tool here.
- A leading ``<think>...</think>`` in ``content`` is reasoning. Calls belong in ``tool_calls``: as text in ``content``
  they are a fault.
- Keys with null that Arrow puts into messages (``tool_calls``, ``name``) count as absent. Nulls inside arguments and
  tool schemas are data.

Keys that no field of a Trace holds go into ``metadata``; those of single messages into
``metadata["message_fields"]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import (
    FINISH,
    Json,
    JsonObject,
    Step,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    Turn,
    UserMessage,
)
from txagent_train.data.importers.words import check_no_calls, split_answer, split_think
from txagent_train.data.reading import strict_loads
from txagent_train.data.schemas import with_required_lists

SYSTEM_ROLES = ("system", "developer")
MESSAGE_KEYS = {
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content", "reasoning", "weight"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
EMPTY: tuple[object, ...] = (None, "", [], {})
"""Values of a message's key that say nothing: what exporters and Arrow fill in."""
TEXT_FIELDS = ("question_id", "source", "license", "teacher")
TRACE_FIELDS = {"id", "entities", "round", *TEXT_FIELDS}


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser. A record without id is named after its file and line."""
    trace_id = f"{path.name.split('.')[0]}-{line}"
    try:
        trace_id = _text_field(record, "id", default=trace_id)
        return _trace(record, trace_id)
    except DataError as error:
        raise error.at(trace_id=trace_id) from None


def _trace(record: JsonObject, trace_id: str) -> Trace:
    if "messages" not in record:
        fix = "read it with --format native" if "turns" in record else ""
        raise DataError("the record has no messages", reason="other_format", fix=fix)
    messages = record["messages"]
    if not isinstance(messages, list):
        raise DataError("messages must be a list", reason="wrong_type")
    if not messages:
        raise DataError("the list of messages is empty", reason="empty_trace")
    conversation = _Conversation()
    for position, message in enumerate(messages):
        conversation.add(position, message)
    conversation.end()
    metadata = {key: value for key, value in record.items() if key not in TRACE_FIELDS | {"messages", "tools"}}
    if conversation.extras:
        metadata["message_fields"] = conversation.extras
    return Trace(
        id=trace_id,
        turns=tuple(conversation.turns),
        answer=conversation.answer,
        system=conversation.system,
        initial_tools=tuple(tool for tool in parse_tools(record.get("tools")) if tool.name != FINISH),
        entities=_entities(record.get("entities")),
        round=_round(record.get("round")),
        metadata=metadata,
        **{name: _text_field(record, name) for name in TEXT_FIELDS},
    )


def _text_field(record: JsonObject, name: str, default: str = "") -> str:
    """A text, or a number written as text: ids are often numbers."""
    value = record.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"{name} must be text, not {type(value).__name__}", reason="wrong_type")
    return str(value)


def _entities(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError("entities must be a list of texts", reason="wrong_type")
    return tuple(value)


def _round(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError("round must be an integer", reason="wrong_type")
    return value


def parse_tools(value: object) -> tuple[ToolSpec, ...]:
    """Tool specs from a list, or from a JSON text of one; each with its ``function`` wrapper or bare.

    Raises:
        DataError: a spec has no name, or a part of it has the wrong type.
    """
    if value is None:
        return ()
    value = _parse_once(value, "tools", "tools_not_json")
    if not isinstance(value, list):
        raise DataError(f"tools must be a list, not {type(value).__name__}", reason="wrong_type")
    return tuple(_parse_tool(item) for item in value)


def _parse_tool(item: object) -> ToolSpec:
    if not isinstance(item, dict):
        raise DataError(f"a tool must be an object, not {type(item).__name__}", reason="invalid_tool_spec")
    function = item.get("function", item)
    if not isinstance(function, dict):
        raise DataError("the function of a tool must be an object", reason="invalid_tool_spec")
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise DataError("a tool has no name", reason="tool_without_name")
    description = function.get("description")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    else:
        parameters = with_required_lists(_parse_once(parameters, f"the parameters of tool {name}", "invalid_tool_spec"))
    described = "" if description is None else description
    plain = {"name": name, "description": described, "parameters": parameters}
    # Most specs can be written back from the three fields; the others keep what they were read from.
    origin = {} if item == {"type": "function", "function": plain} else {"openai": item}
    return ToolSpec(name, described, parameters, origin)


def _parse_once(value: Any, what: str, reason: str) -> Any:
    """The value itself, or the JSON value of a text. A text inside the text is an error: it was encoded twice."""
    if not isinstance(value, str):
        return value
    try:
        parsed = strict_loads(value)
    except ValueError as error:
        raise DataError(f"{what} are a text that is not JSON: {error}", reason=reason) from None
    if isinstance(parsed, str):
        fix = "write them as a JSON object, or as the text of one"
        raise DataError(f"{what} are JSON in JSON: encoded twice", reason="double_encoded", fix=fix)
    return parsed


@dataclass
class _OpenStep:
    """An assistant message whose results are still coming in."""

    position: int
    thought: str
    reasoning: str
    weight: float
    calls: tuple[ToolCall, ...]
    ids: tuple[str | None, ...]
    results: list[ToolResult] = field(default_factory=list)

    def take(self, message: JsonObject) -> None:
        """Add the result that a tool message holds."""
        index = self._call_of(message.get("tool_call_id"))
        name = message.get("name")
        if name is not None and name != self.calls[index].name:
            problem = f"the result of {self.calls[index].name} says that it comes from {name}"
            raise DataError(problem, reason="result_of_other_tool")
        self.results.append(ToolResult(index, _tool_content(message.get("content"))))

    def _call_of(self, call_id: object) -> int:
        answered = {result.call_index for result in self.results}
        if call_id in (None, "") or all(known is None for known in self.ids):
            index = next((index for index in range(len(self.calls)) if index not in answered), None)
            if index is None:
                raise DataError("a tool message answers no call", reason="result_without_call")
            return index
        if str(call_id) not in self.ids:
            problem = f"a tool message answers {call_id!r}, which no call before it has"
            raise DataError(problem, reason="result_without_call")
        index = self.ids.index(str(call_id))
        if index in answered:
            raise DataError(f"call {call_id!r} has two results", reason="duplicate_result")
        return index

    def close(self) -> Step:
        return Step(
            thought=self.thought,
            reasoning=self.reasoning,
            calls=self.calls,
            results=tuple(self.results),
            weight=self.weight,
        )


class _Conversation:
    """Reads messages in order; call ``add`` for each and then ``end``."""

    def __init__(self) -> None:
        self.system: str | None = None
        self.turns: list[Turn] = []
        self.answer: str | None = None
        self.extras: list[Json] = []
        self._open: _OpenStep | None = None
        self._steps = 0

    def add(self, position: int, message: object) -> None:
        """Read one message.

        Raises:
            DataError: it does not fit what came before; names the step.
        """
        try:
            if self._open is not None and self._open.position == position - 1:
                check_no_calls(self._open.thought)  # only the last message may hold words of a wire format
            if not isinstance(message, dict):
                raise DataError(f"a message must be an object, not {type(message).__name__}", reason="wrong_type")
            self._add(position, message)
        except DataError as error:
            step = self._steps - 1 if self._steps else None
            problem = f"message {position}: {error.problem}"
            raise DataError(problem, reason=error.reason, step=step, fix=error.fix) from None

    def _add(self, position: int, message: JsonObject) -> None:
        role = message.get("role")
        if not isinstance(role, str) or role not in MESSAGE_KEYS:
            known = ", ".join(MESSAGE_KEYS)
            raise DataError(f"there is no role {role!r}", reason="unknown_role", fix=f"known: {known}")
        extras = {key: value for key, value in message.items() if key not in MESSAGE_KEYS[role] and value not in EMPTY}
        if extras:
            self.extras.append({"message": position, **extras})
        if role == "tool":
            if self._open is None:
                raise DataError("a tool message follows no call", reason="result_without_call")
            self._open.take(message)
            return
        self._close_step()
        if role == "assistant":
            self._steps += 1
            self._open = _open_step(message, position)
        elif role == "user":
            self.turns.append(UserMessage(_text(message.get("content"))))
        else:
            if position > 0:
                raise DataError("a system message must be the first message", reason="misplaced_system")
            self.system = _text(message.get("content")) or None

    def _close_step(self) -> None:
        if self._open is not None:
            self.turns.append(self._open.close())
            self._open = None

    def end(self) -> None:
        """Close the last step: without calls, or with Finish as its only one, it is the answer.

        Raises:
            DataError: as add.
        """
        last = self._open
        if last is not None and [call.name for call in last.calls] == [FINISH] and not last.results:
            if last.calls[0].arguments:
                self.extras.append({"message": last.position, "finish_arguments": last.calls[0].arguments})
            last.calls, last.ids = (), ()
        elif last is None or last.calls:
            check_no_calls(last.thought if last else "", step=self._steps - 1)
            self._close_step()
            return
        last.thought, self.answer = split_answer(last.thought)
        if not self.answer.strip():
            problem = "the last assistant message has neither content nor a call"
            raise DataError(problem, reason="empty_answer", step=self._steps - 1)
        check_no_calls(last.thought + self.answer, step=self._steps - 1)
        self._close_step()


def _open_step(message: JsonObject, position: int) -> _OpenStep:
    if message.get("function_call") is not None:
        problem = "the message has a function_call, the form that tool_calls replaced"
        raise DataError(problem, reason="legacy_function_call", fix="write it as tool_calls")
    calls, ids = _parse_calls(message.get("tool_calls"))
    weight = message.get("weight")
    if weight is None:
        weight = 1.0
    elif isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise DataError(f"the weight of a message must be a number, not {weight!r}", reason="invalid_weight")
    hidden, thought = split_think(_text(message.get("content")))
    return _OpenStep(
        position=position,
        thought=thought,
        reasoning=_reasoning(message, hidden),
        weight=float(weight),
        calls=calls,
        ids=ids,
    )


def _reasoning(message: JsonObject, hidden: str) -> str:
    """Servers name the field one way or the other, or leave it in <think> (``hidden``); some send several, equal."""
    texts = [text for key in ("reasoning_content", "reasoning") if (text := _text(message.get(key)))]
    if hidden:
        texts.append(hidden)
    if len({text.strip() for text in texts}) > 1:
        problem = "reasoning, reasoning_content and <think> in content differ"
        raise DataError(problem, reason="two_reasonings", fix="keep one of them")
    return texts[0] if texts else ""


def _parse_calls(value: object) -> tuple[tuple[ToolCall, ...], tuple[str | None, ...]]:
    if value is None:
        return (), ()
    if not isinstance(value, list):
        raise DataError(f"tool_calls must be a list, not {type(value).__name__}", reason="wrong_type")
    calls = tuple(_parse_call(item) for item in value)
    ids = tuple(None if item.get("id") in (None, "") else str(item["id"]) for item in value)
    present = [call_id for call_id in ids if call_id is not None]
    if len(set(present)) != len(present):
        twice = next(call_id for call_id in present if present.count(call_id) > 1)
        raise DataError(f"two calls of the message have the id {twice!r}", reason="duplicate_call_id")
    return calls, ids


def _parse_call(item: object) -> ToolCall:
    if not isinstance(item, dict):
        raise DataError(f"a call must be an object, not {type(item).__name__}", reason="wrong_type")
    function = item.get("function", item)
    if not isinstance(function, dict):
        raise DataError("the function of a call must be an object", reason="wrong_type")
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise DataError("a call names no tool", reason="call_without_name")
    arguments = _parse_once(function.get("arguments"), f"the arguments of the call to {name}", "arguments_not_json")
    return ToolCall(name, arguments)


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise DataError(f"content must be text or a list of parts, not {type(content).__name__}", reason="wrong_type")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise DataError(f"content has a part that is not text: {kind}", reason="unsupported_content_part")
        texts.append(part["text"])
    return "".join(texts)


def _tool_content(content: object) -> Json:
    return content if isinstance(content, dict) else _text(content)
