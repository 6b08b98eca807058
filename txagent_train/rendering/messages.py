"""Records as chat messages: what is handed to the chat template, and to a server.

    system     {"role": "system", "content": ...}
    user       {"role": "user", "content": ...}
    assistant  {"role": "assistant", "content": thought, "tool_calls": [{"id", "type", "function": {name, arguments}}]}
    tool       {"role": "tool", "content": ...}

In the ``txagent`` syntax the content of a tool message is the JSON text ``{"content": ..., "call_id": ...}``, one
message per call, as the original agent writes it; in ``hermes`` it is the result itself.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator, Sequence
from typing import Any

from txagent_train.core.records import Json, JsonObject, Step, StepStatus, ToolResult, ToolSpec, Turn, UserMessage
from txagent_train.rendering.controls import well_formed, well_formed_json
from txagent_train.rendering.wire import WireFormat

Message = dict[str, Any]

_ID_LETTERS = string.ascii_letters + string.digits


def call_id(seed: int, trace_id: str, step: int, call: int) -> str:
    """The wire id of a call: nine letters and digits, the same in training and in a replayed run."""
    rng = random.Random(f"call:{seed}:{trace_id}:{step}:{call}")
    return "".join(rng.choices(_ID_LETTERS, k=9))


def json_text(value: Json, *, ascii_only: bool) -> str:
    """``json.dumps`` as the templates' ``tojson`` does it: key order kept, default separators."""
    return json.dumps(value, ensure_ascii=ascii_only)


def tool_message(spec: ToolSpec) -> JsonObject:
    """A tool as the OpenAI API and ``apply_chat_template(tools=...)`` take it."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": well_formed_json(function)}


def _result_text(result: ToolResult, wire: WireFormat, identifier: str) -> str:
    content = well_formed_json(result.content)
    if wire.syntax == "txagent" and result.call_index is not None:
        return json_text({"content": content, "call_id": identifier}, ascii_only=True)
    return content if isinstance(content, str) else json_text(content, ascii_only=False)


def turn_messages(turn: Turn, step: int, *, wire: WireFormat, seed: int, trace_id: str) -> Iterator[Message]:
    """The messages of one turn. ``step`` is the number of the model's steps before it: it is part of the call ids."""
    if isinstance(turn, UserMessage):
        yield {"role": "user", "content": well_formed(turn.content)}
        return
    ids = [call_id(seed, trace_id, step, index) for index in range(len(turn.calls))]
    if turn.status is StepStatus.UNPARSABLE:
        yield {"role": "assistant", "content": well_formed(turn.raw_output or "")}
    else:
        message: Message = {"role": "assistant", "content": well_formed(turn.thought)}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": identifier,
                    "type": "function",
                    "function": well_formed_json({"name": call.name, "arguments": call.arguments}),
                }
                for identifier, call in zip(ids, turn.calls, strict=True)
            ]
        yield message
    if turn.summary is not None:
        yield {"role": "tool", "content": well_formed(turn.summary)}
        return
    # In the order of the calls: the hermes syntax has no ids, so that order alone says which result is whose.
    for result in sorted(turn.results, key=lambda item: (item.call_index is None, item.call_index or 0)):
        identifier = "" if result.call_index is None else ids[result.call_index]
        yield {"role": "tool", "content": _result_text(result, wire, identifier)}


def to_messages(
    *, wire: WireFormat, seed: int, trace_id: str, system: str | None, turns: Sequence[Turn]
) -> list[Message]:
    """The messages of a conversation so far, ready for the chat template."""
    messages: list[Message] = []
    if system is not None and system.strip():
        messages.append({"role": "system", "content": well_formed(system)})
    steps = 0
    for turn in turns:
        messages.extend(turn_messages(turn, steps, wire=wire, seed=seed, trace_id=trace_id))
        steps += isinstance(turn, Step)
    return messages
