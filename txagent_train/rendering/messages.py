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


def _step_messages(step: Step, wire: WireFormat, ids: Sequence[str]) -> Iterator[Message]:
    if step.status is StepStatus.UNPARSABLE:
        yield {"role": "assistant", "content": well_formed(step.raw_output or "")}
    else:
        message: Message = {"role": "assistant", "content": well_formed(step.thought)}
        if step.calls:
            message["tool_calls"] = [
                {
                    "id": identifier,
                    "type": "function",
                    "function": well_formed_json({"name": call.name, "arguments": call.arguments}),
                }
                for identifier, call in zip(ids, step.calls, strict=True)
            ]
        yield message
    if step.summary is not None:
        yield {"role": "tool", "content": well_formed(step.summary)}
        return
    for result in step.results:
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
        if isinstance(turn, UserMessage):
            messages.append({"role": "user", "content": well_formed(turn.content)})
            continue
        ids = [call_id(seed, trace_id, steps, index) for index in range(len(turn.calls))]
        messages.extend(_step_messages(turn, wire, ids))
        steps += 1
    return messages
