"""The OpenAI format: ``messages`` with ``tool_calls``, and ``tools``.

    {"id": ..., "messages": [{"role": "user", "content": ...}, ...], "tools": [{"type": "function", ...}]}

What messages must keep to is in ``conversation``. ``functions`` is the older name of ``tools``. ``Finish`` is no tool
here.

``train: false`` and ``weight`` of a record are for all its steps. Keys that no field of a Trace holds go into
``metadata``; those of single messages into ``metadata["message_fields"]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Step, ToolSpec, Trace, Turn
from txagent_train.data.importers.conversation import Conversation
from txagent_train.data.importers.values import (
    EMPTY,
    entities_field,
    named_format,
    parse_once,
    parse_tools,
    round_field,
    text_field,
    train_field,
    weight_field,
)

TEXT_FIELDS = ("question_id", "source", "license", "teacher")
TRACE_FIELDS = {"id", "entities", "round", "train", "weight", *TEXT_FIELDS}


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser. A record without id is named after its file and line."""
    trace_id = default_id(path, line)
    try:
        trace_id = text_field(record, "id", default=trace_id)
        messages = list_of(record, "messages")
        tools = declared_tools(record)
        conversation = Conversation()
        for position, message in enumerate(messages):
            conversation.add(position, message)
        conversation.end(has_tools=bool(tools))
        return build_trace(record, trace_id, conversation, tools, used={"messages", "tools", "functions"})
    except DataError as error:
        raise error.at(trace_id=trace_id) from None


def default_id(path: Path, line: int) -> str:
    """The name of a record that brings none."""
    return f"{path.name.split('.')[0]}-{line}"


def list_of(record: JsonObject, name: str) -> list[object]:
    """The messages of a record, at least one; as a list, or as the JSON text of one (as tables may hold them).

    Raises:
        DataError: there are none, or they are no list.
    """
    if name not in record:
        fix = named_format("native") if "turns" in record else ""
        raise DataError(f"the record has no {name}", reason="other_format", fix=fix)
    messages = parse_once(record[name], name, "messages_not_json")
    if not isinstance(messages, list):
        raise DataError(f"{name} must be a list", reason="wrong_type")
    if not messages:
        raise DataError(f"the list of {name} is empty", reason="empty_trace")
    return messages


def declared_tools(record: JsonObject) -> tuple[ToolSpec, ...]:
    """The tools of a record, under their present or their older name. Raises as parse_tools."""
    tools, functions = record.get("tools"), record.get("functions")
    if tools not in EMPTY and functions not in EMPTY:
        raise DataError("the record has both tools and functions", reason="two_tool_lists", fix="keep one of them")
    return parse_tools(functions if tools in EMPTY else tools)


def build_trace(
    record: JsonObject,
    trace_id: str,
    conversation: Conversation,
    tools: tuple[ToolSpec, ...],
    *,
    used: set[str],
    turns: Sequence[Turn] | None = None,
) -> Trace:
    """The trace of a conversation that has ended, with the other fields of its record.

    Args:
        used: keys of the record that were read already; what no field of a Trace holds besides becomes metadata.
        turns: where they are not those of the conversation as it stands.

    Raises:
        DataError: the turns do not fit each other, or a field has the wrong type.
    """
    metadata = {key: value for key, value in record.items() if key not in TRACE_FIELDS | used}
    if conversation.extras:
        metadata["message_fields"] = conversation.extras
    return Trace(
        id=trace_id,
        turns=tuple(_supervised(conversation.turns if turns is None else turns, record)),
        answer=conversation.answer,
        system=conversation.system,
        initial_tools=tools,
        entities=entities_field(record),
        round=round_field(record),
        metadata=metadata,
        **{name: text_field(record, name) for name in TEXT_FIELDS},
    )


def _supervised(turns: Sequence[Turn], record: JsonObject) -> Iterator[Turn]:
    """The turns with what the record says of training on all of them."""
    train, weight = train_field(record), weight_field(record)
    for turn in turns:
        if isinstance(turn, Step):
            turn = replace(turn, train=turn.train and train, weight=turn.weight * weight)
        yield turn
