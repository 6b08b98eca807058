"""The ToolBench format: each row is a recording up to one step, in the older OpenAI form, with ``functions``.

    {"messages": [..., {"role": "assistant", "content": null, "function_call": {"name": ..., "arguments": "{...}"}}],
     "functions": [{"name": ..., "parameters": {...}}, ...]}

Rows of a recording are prefixes of each other, so only the last step of a row is trained (``importers.SUPERVISED``).
What differs from ``conversation``, which reads the rest:

- Text without a call is no answer: a recording ends with a call of Finish, which may also give up.
- A message with ``valid: false`` stays in the history and is never trained.
- An earlier call whose arguments cannot be read is an unparsable step: it is history. As the last step of a row it is
  a fault.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.importers.annotated import AnnotatedConversation
from txagent_train.data.importers.openai import build_trace, declared_tools, default_id, list_of
from txagent_train.data.importers.values import parse_call, result_content, text_field, text_of

RESULT_ROLES = ("function", "tool")


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser. A record without id is named after its file and line."""
    trace_id = default_id(path, line)
    try:
        trace_id = text_field(record, "id", default=trace_id)
        messages = list_of(record, "messages")
        tools = declared_tools(record)
        conversation = _read(messages)
        used = {"messages", "tools", "functions"}
        return build_trace(record, trace_id, conversation, tools, used=used, turns=conversation.annotated())
    except DataError as error:
        raise error.at(trace_id=trace_id) from None


def _read(messages: list[object]) -> AnnotatedConversation:
    conversation = AnnotatedConversation()
    steps = [position for position, message in enumerate(messages) if _role(message) == "assistant"]
    unreadable = False
    for position, message in enumerate(messages):
        if not isinstance(message, dict) or _role(message) not in ("assistant", *RESULT_ROLES):
            conversation.add(position, message)
        elif _role(message) in RESULT_ROLES:
            named = {} if unreadable else {"name": message.get("name")}
            call_id = None if unreadable else message.get("tool_call_id")
            conversation.add_result(position, result_content(message.get("content")), named, call_id=call_id)
        else:
            raw_output = _unreadable_call(message) if position != steps[-1] else None
            unreadable = raw_output is not None
            if raw_output is None:
                conversation.add_step(position, _with_train(message), ends_turn=False)
            else:
                errors = _results_after(messages, position)
                conversation.add_unparsable(position, _with_train(message), raw_output, errors)
    conversation.end(finish_needed=True)
    return conversation


def _role(message: object) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _results_after(messages: list[object], position: int) -> int:
    count = 0
    while position + count + 1 < len(messages) and _role(messages[position + count + 1]) in RESULT_ROLES:
        count += 1
    return count


def _with_train(message: JsonObject) -> JsonObject:
    rest = {key: value for key, value in message.items() if key != "valid"}
    return {**rest, "train": False} if message.get("valid") is False else rest


def _unreadable_call(message: JsonObject) -> str | None:
    """The output as the model wrote it where its call cannot be read, else None."""
    call = message.get("function_call")
    if call is None:
        return None
    try:
        parse_call(call)
    except DataError:
        written = call.get("arguments") if isinstance(call, dict) else None
        name = json.dumps(call.get("name") if isinstance(call, dict) else call, ensure_ascii=False)
        arguments = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
        text = text_of(message.get("content"))
        return f"{text}\n" * bool(text) + f'{{"name": {name}, "arguments": {arguments}}}'
    return None
