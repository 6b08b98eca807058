"""Records as chat messages: what is handed to the chat template, and to a server.

    system     {"role": "system", "content": ...}
    user       {"role": "user", "content": ...}
    assistant  {"role": "assistant", "content": thought, "tool_calls": [{"id", "type", "function": {name, arguments}}]}
    tool       {"role": "tool", "content": ...}

In the ``txagent`` syntax the content of a tool message is the JSON text ``{"content": ..., "call_id": ...}``, one
message per call, as the original agent writes it; in ``hermes`` it is the result itself.

With ``tool_delivery: result``, a result that brought tools into view carries their specs, each as the list of tools has
it, and is a JSON object in both syntaxes; its content is what it was:

    txagent    {"content": ["get_dose"], "tools": [{"name": "get_dose", ...}], "call_id": ...}
    hermes     {"content": ["get_dose"], "tools": [{"type": "function", "function": {"name": "get_dose", ...}}]}
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from txagent_train.core.records import (
    FINISH,
    TOOL_RAG,
    Json,
    JsonObject,
    Step,
    StepStatus,
    ToolResult,
    ToolSpec,
    Turn,
    UserMessage,
)
from txagent_train.data.mentions import strings
from txagent_train.rendering.controls import well_formed, well_formed_json
from txagent_train.rendering.wire import WireFormat

Message = dict[str, Any]
Escape: TypeAlias = Callable[[str], str]
"""Breaks the control strings in a JSON text so that it parses back to what it was (syntax.Cleaner.json)."""

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


def listed_tool(spec: ToolSpec, wire: WireFormat) -> JsonObject:
    """A tool as the prompt has it, in the list as in a result."""
    message = tool_message(spec)
    return message["function"] if wire.syntax == "txagent" else message


def _answers(step: Step) -> list[ToolResult]:
    """What came back for a step: its results, or the summary that stands for them."""
    if step.summary is not None:
        return [ToolResult(None, step.summary)]
    # In the order of the calls: the hermes syntax has no ids, so that order alone says which result is whose.
    return sorted(step.results, key=lambda item: (item.call_index is None, item.call_index or 0))


def _carried(step: Step, answers: Sequence[ToolResult], found: Sequence[ToolSpec]) -> list[list[ToolSpec]]:
    """The tools that each answer carries: those that it is the first to name; the last answer carries the rest.

    Answers of Tool_RAG, where there are any: a record need not say which call brought which tool.
    """
    places = [
        place
        for place, answer in enumerate(answers)
        if answer.call_index is not None and step.calls[answer.call_index].name == TOOL_RAG
    ] or list(range(len(answers)))
    named = {place: set(strings(answers[place].content)) for place in places}
    carried: list[list[ToolSpec]] = [[] for _ in answers]
    for spec in found:
        carried[next((place for place in places if spec.name in named[place]), places[-1])].append(spec)
    return carried


def _answer_text(answer: ToolResult, identifier: str, tools: Sequence[ToolSpec], wire: WireFormat) -> str:
    content = well_formed_json(answer.content)
    value: JsonObject = {"content": content}
    if tools:
        value["tools"] = [listed_tool(spec, wire) for spec in tools]
    if wire.syntax == "txagent" and answer.call_index is not None:
        value["call_id"] = identifier
    if len(value) > 1:
        return json_text(value, ascii_only=wire.syntax == "txagent")
    return content if isinstance(content, str) else json_text(content, ascii_only=False)


def _tool_contents(step: Step, ids: Sequence[str], wire: WireFormat, escape: Escape) -> Iterator[str]:
    """The contents of the tool messages behind a step."""
    answers, found = _answers(step), []
    if wire.tool_delivery == "result":
        found = [spec for spec in step.tools_added if spec.name != FINISH]  # the wire format shows its own
    if found and not answers:
        answers = [ToolResult(None, "")]  # tools that came without an answer must stand somewhere
    for answer, tools in zip(answers, _carried(step, answers, found), strict=True):
        identifier = "" if answer.call_index is None else ids[answer.call_index]
        text = _answer_text(answer, identifier, tools, wire)
        # Specs are escaped as they are in the list: the name that the model reads is the one that it must write.
        yield escape(text) if tools else text


def turn_messages(
    turn: Turn, step: int, *, wire: WireFormat, seed: int, trace_id: str, escape: Escape
) -> Iterator[Message]:
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
    for content in _tool_contents(turn, ids, wire, escape):
        yield {"role": "tool", "content": content}


def to_messages(
    *, wire: WireFormat, seed: int, trace_id: str, system: str | None, turns: Sequence[Turn], escape: Escape
) -> list[Message]:
    """The messages of a conversation so far, ready for the chat template."""
    messages: list[Message] = []
    if system is not None and system.strip():
        messages.append({"role": "system", "content": well_formed(system)})
    steps = 0
    for turn in turns:
        messages.extend(turn_messages(turn, steps, wire=wire, seed=seed, trace_id=trace_id, escape=escape))
        steps += isinstance(turn, Step)
    return messages
