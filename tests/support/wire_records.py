"""Traces written in the forms that the original agents record: what an import must read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from txagent_train.core.records import (
    FINISH,
    JsonObject,
    Step,
    StepExample,
    StepStatus,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    Turn,
    UserMessage,
)
from txagent_train.rendering.controls import Neutraliser, well_formed, well_formed_json
from txagent_train.rendering.messages import to_messages, tool_message
from txagent_train.rendering.syntax import Cleaner, assistant_text, system_text, target_text, tool_turns
from txagent_train.rendering.wire import FINISH_TOOL, SYNTAX_MARKERS, WireFormat

TXAGENT = WireFormat("llama3", "txagent", "call")
HERMES = WireFormat("chatml", "hermes", "call")


def cleaner() -> Cleaner:
    """Breaks the words of both syntaxes: the tokenizer's own control strings are no matter of text."""
    markers = Neutraliser.of(SYNTAX_MARKERS)
    return Cleaner(foreign=markers, system=markers)


def clean(text: str) -> str:
    return cleaner().text(well_formed(text))


def _messages(trace: Trace, wire: WireFormat) -> Iterator[tuple[Step | None, list[Any]]]:
    """The messages of each turn but the last; None for a turn of the user."""
    for turn in trace.turns[:-1]:
        messages = to_messages(wire=wire, seed=1, trace_id=trace.id, system=None, turns=(turn,), escape=cleaner().json)
        yield (turn if isinstance(turn, Step) else None), messages


def _last_output(trace: Trace, wire: WireFormat) -> str:
    last = len(trace.steps) - 1
    return target_text(StepExample(trace, last, trace.initial_tools), wire, cleaner())


def _tooluniverse(spec: ToolSpec) -> JsonObject:
    function = tool_message(spec)["function"]
    return {"name": function["name"], "description": function["description"], "parameter": function["parameters"]}


def txagent_record(trace: Trace) -> JsonObject:
    """The record of TxAgent-Instruct: calls, results and tools as JSON texts; lists of tools grow where tools came."""
    shown = [FINISH_TOOL, *trace.initial_tools]
    none = {"tool_calls": "null", "tools": "null"}
    out: list[JsonObject] = [
        {
            **none,
            "role": "system",
            "content": well_formed(trace.system or ""),
            "tools": json.dumps([*map(_tooluniverse, shown)]),
        }
    ]
    for step, messages in _messages(trace, TXAGENT):
        for message in messages:
            written = {**none, "role": message["role"], "content": message["content"]}
            if message["role"] == "assistant" and step is not None and step.status is StepStatus.OK:
                written["content"] = clean(message["content"])
                calls = [{**call["function"], "call_id": call["id"]} for call in message.get("tool_calls", ())]
                written["tool_calls"] = json.dumps(calls or None)
            out.append(written)
        if step is not None and step.tools_added:
            shown += step.tools_added
            out[-1]["tools"] = json.dumps([*map(_tooluniverse, shown)])
    text, _, finish = _last_output(trace, TXAGENT).partition("[TOOL_CALLS]")
    out.append({**none, "role": "assistant", "content": text, "tool_calls": finish})
    return {"id": trace.id, "messages": out}


def hermes_record(trace: Trace, *, blocks: bool) -> JsonObject:
    """The same as Hermes text: tools in the system prompt, results as messages of their own or as ``blocks``."""
    tools = HERMES.arrange_tools(tuple(trace.tools()))
    out = [("system", system_text(well_formed(trace.system or ""), tools, HERMES, cleaner()))]
    for step, messages in _messages(_without_summaries(trace), HERMES):
        if step is None:
            out += [("user", clean(message["content"])) for message in messages]
            continue
        first, *results = messages
        text = first["content"] if step.status is StepStatus.UNPARSABLE else assistant_text(first, HERMES, cleaner())
        if reasoning := clean(step.reasoning).strip():
            text = f"<think>\n{reasoning}\n</think>\n\n{text}"
        out.append(("assistant", text))
        if blocks and results:
            out += [("user", turn) for turn in tool_turns(results, HERMES, cleaner())]
        else:
            out += [("tool", clean(message["content"])) for message in results]
    out.append(("assistant", _last_output(trace, HERMES)))
    return {"id": trace.id, "messages": [{"role": role, "content": content} for role, content in out]}


def _without_summaries(trace: Trace) -> Trace:
    turns = (replace(turn, summary=None) if isinstance(turn, Step) else turn for turn in trace.turns)
    return replace(trace, turns=tuple(turns))


def as_read_back(trace: Trace, wire: WireFormat) -> JsonObject:
    """What an import of the written trace holds. Order of keys and types of numbers count: compare as JSON text.

    Text of the model has its control strings broken; so has all text of the Hermes form, where results are text,
    summaries have no form, and the tools are all there from the start. TxAgent's form has no hidden reasoning.
    """
    is_txagent = wire.syntax == "txagent"
    known = [FINISH_TOOL, *trace.initial_tools]
    turns: list[Turn] = []
    for turn in trace.turns[:-1]:
        if isinstance(turn, UserMessage):
            turns.append(UserMessage(well_formed(turn.content) if is_txagent else clean(turn.content)))
        elif is_txagent:
            turns.append(_txagent_step(turn, known))
        else:
            turns.append(_hermes_step(turn))
    last = trace.steps[-1]
    turns.append(Step(clean(last.thought).strip(), reasoning=clean(last.reasoning).strip()))
    # Hermes' prompt shows the tools in the order of the wire format.
    tools = trace.initial_tools if is_txagent else HERMES.arrange_tools(tuple(trace.tools()))
    system = well_formed(trace.system or "") if is_txagent else clean(trace.system or "").strip()
    return {
        "turns": turns,
        "answer": clean(trace.answer or "").strip(),
        "system": system or None,
        "tools": [_plain(spec) for spec in tools if spec.name != FINISH],
    }


def _plain(spec: ToolSpec) -> ToolSpec:
    function = tool_message(spec)["function"]
    return ToolSpec(function["name"], function["description"], function["parameters"])


def _calls(step: Step) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(well_formed(call.name), well_formed_json(call.arguments)) for call in step.calls)


def _txagent_step(step: Step, known: list[ToolSpec]) -> Step:
    new = [spec for spec in step.tools_added if spec not in known]
    known += new
    results = tuple(replace(result, content=well_formed_json(result.content)) for result in step.results)
    if step.status is StepStatus.UNPARSABLE:
        return Step(raw_output=well_formed(step.raw_output or ""), status=step.status, results=results)
    summary = None if step.summary is None else well_formed(step.summary)
    return Step(
        clean(step.thought),
        calls=_calls(step),
        results=() if summary is not None else results,
        summary=summary,
        tools_added=tuple(map(_plain, new)),
    )


def _hermes_step(step: Step) -> Step:
    results = tuple(_as_text(result) for result in step.results)
    if step.status is StepStatus.UNPARSABLE:
        return Step(raw_output=well_formed(step.raw_output or ""), status=step.status, results=results)
    reasoning = clean(step.reasoning).strip()
    return Step(clean(step.thought).strip(), reasoning=reasoning, calls=_calls(step), results=results)


def _as_text(result: ToolResult) -> ToolResult:
    content = well_formed_json(result.content)
    return replace(
        result, content=clean(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    )
