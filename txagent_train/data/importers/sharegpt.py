"""The ShareGPT format, as LLaMA-Factory reads it: ``conversations`` of {``from``, ``value``}, and ``tools``.

    {"conversations": [{"from": "human", "value": ...}, {"from": "function_call", "value": "{...}"},
                       {"from": "observation", "value": ...}, {"from": "gpt", "value": ...}], "tools": "[...]"}

Each record is written in the OpenAI form and read by ``conversation``. What differs:

- Turns may be spelled ``role`` and ``content``, and the list ``messages``. The roles are in ROLES.
- The value of a ``function_call`` is one call or a list of calls, as JSON or as its text. Several such turns in a row
  are parallel calls, and the text of a ``gpt`` turn right before them is their thought.
- An ``observation`` answers one call, in order; a single one that holds a list of as many items as there were calls
  answers them all.
- ``tools`` is a list or the JSON text of one. ``system`` beside the conversation is the system prompt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import Json, JsonObject, Trace
from txagent_train.data.importers.conversation import Conversation
from txagent_train.data.importers.openai import build_trace, default_id, list_of
from txagent_train.data.importers.values import EMPTY, parse_once, parse_tools, text_field
from txagent_train.data.importers.words import split_think
from txagent_train.data.strict_json import strict_loads

CALL_ROLES = ("function_call", "function-call", "tool_call", "tool_calls")
RESULT_ROLES = ("observation", "tool", "tool_response", "function_response", "function")
ROLES = {
    "system": "system",
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bot", "model"), "assistant"),
    **dict.fromkeys(CALL_ROLES, "call"),
    **dict.fromkeys(RESULT_ROLES, "tool"),
}
"""The words for roles that data sets use, and what they mean here."""


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser. A record without id is named after its file and line."""
    trace_id = default_id(path, line)
    try:
        trace_id = text_field(record, "id", default=trace_id)
        turns = list_of(
            record, "messages" if "conversations" not in record and "messages" in record else "conversations"
        )
        tools = parse_tools(record.get("tools"))
        conversation = Conversation()
        for position, message in _messages(_with_system(turns, record.get("system"))):
            conversation.add(position, message)
        conversation.end(has_tools=bool(tools))
        return build_trace(record, trace_id, conversation, tools, used={"conversations", "messages", "tools", "system"})
    except DataError as error:
        raise error.at(trace_id=trace_id) from None


def _with_system(turns: list[object], system: object) -> list[object]:
    """The turns with the system prompt that stands beside them."""
    if system in EMPTY:
        return turns
    own = turns[0] if isinstance(turns[0], dict) else {}
    if own.get("from", own.get("role")) != "system":
        return [{"from": "system", "value": system}, *turns]
    if own.get("value", own.get("content")) != system:
        problem = "the record has two system prompts: one beside the conversation and one in it"
        raise DataError(problem, reason="two_systems", fix="keep one of them")
    return turns


class _Writer:
    """Writes turns as messages of the OpenAI form, each with the place of its first turn."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, JsonObject]] = []
        self.steps = 0
        self._joins = False
        """Whether the last turn was the model's, so that a call goes into its message."""
        self._results: list[tuple[int, Any, JsonObject]] = []

    def add(self, position: int, item: object) -> None:
        role, value, rest = _turn(item)
        if role == "tool":
            self._results.append((position, value, rest))
            self._joins = False
            return
        self.flush()
        if role == "call":
            self._call(position, value, rest)
            return
        self._joins = role == "assistant"
        self.steps += self._joins
        self.messages.append((position, {"role": role, "content": value, **rest}))

    def _call(self, position: int, value: Any, rest: JsonObject) -> None:
        if not self._joins:
            self.steps += 1
            self.messages.append((position, {"role": "assistant", "content": None}))
            self._joins = True
        message = self.messages[-1][1]
        hidden, calls = _calls(value)
        before = message.get("tool_calls") or []
        if rest.get("tool_calls") not in EMPTY or not isinstance(before, list):
            problem = "calls stand both in the values of turns and in tool_calls"
            raise DataError(problem, reason="two_call_forms", fix="keep one of them")
        message.update(rest)
        if hidden and message.get("reasoning", hidden) != hidden:
            problem = "reasoning and <think> of a function_call differ"
            raise DataError(problem, reason="two_reasonings", fix="keep one of them")
        if hidden:
            message["reasoning"] = hidden
        message["tool_calls"] = [*before, *calls]

    def flush(self) -> None:
        """Write the results that came in: they answer the calls of the last message."""
        results, self._results = self._results, []
        calls = self.messages[-1][1].get("tool_calls") if self.messages else None
        count = len(calls) if isinstance(calls, list) else 0
        if len(results) == 1 and count > 1:
            position, value, rest = results[0]
            results = [(position, _result(item), rest) for item in _split(value, count)]
        self.messages.extend(
            (position, {"role": "tool", "content": _result(value), **rest}) for position, value, rest in results
        )


def _messages(turns: list[object]) -> list[tuple[int, JsonObject]]:
    writer = _Writer()
    position = 0
    try:
        for position, item in enumerate(turns):
            writer.add(position, item)
        writer.flush()
    except DataError as error:
        step = writer.steps - 1 if writer.steps else None
        raise DataError(f"turn {position}: {error.problem}", reason=error.reason, step=step, fix=error.fix) from None
    return writer.messages


def _turn(item: object) -> tuple[str, Any, JsonObject]:
    """What a turn is, its value, and its other keys."""
    if not isinstance(item, dict):
        raise DataError(f"a turn must be an object, not {type(item).__name__}", reason="wrong_type")
    name = item.get("from", item.get("role"))
    if not isinstance(name, str) or name not in ROLES:
        raise DataError(f"there is no role {name!r}", reason="unknown_role", fix=f"known: {', '.join(ROLES)}")
    rest = {key: value for key, value in item.items() if key not in ("from", "role", "value", "content")}
    return ROLES[name], item.get("value", item.get("content")), rest


def _calls(value: Any) -> tuple[str, list[Any]]:
    """A leading <think> text, and the calls."""
    hidden = ""
    if isinstance(value, str):
        if value.lstrip()[:1] not in ("[", "{"):
            hidden, value = split_think(value)
        value = parse_once(value, "the calls of a function_call", "call_not_json")
    calls = value if isinstance(value, list) else [value]
    if not calls:
        raise DataError("a function_call holds no call", reason="call_without_name")
    return hidden, calls


def _split(value: Any, count: int) -> list[Any]:
    """The results of several calls out of one observation."""
    items = value
    if isinstance(value, str):
        try:
            items = strict_loads(value)
        except ValueError:
            items = None
    if not isinstance(items, list) or len(items) != count:
        problem = f"one observation follows {count} calls, and it is no list of {count} results"
        raise DataError(problem, reason="results_not_split", fix="write one observation for each call")
    return items


def _result(value: Any) -> Json:
    """A result as a message holds it: a text or an object as it is, other JSON as its text."""
    return value if value is None or isinstance(value, (str, dict)) else json.dumps(value, ensure_ascii=False)
