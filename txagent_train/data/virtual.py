"""Virtual calls: tools that were there from the start are searched for with Tool_RAG instead (paper 3.3).

A trace that was recorded with all its tools at hand teaches nothing about finding them. So some of the tools that it
uses are taken away, and right before the first use of one stands a step that asks Tool_RAG for it:

    tools: a b c | question | call b | ...    ->    tools: a c Tool_RAG | question | Tool_RAG: b d e | call b | ...
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import (
    TOOL_RAG,
    JsonObject,
    Step,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    Turn,
    UserMessage,
)
from txagent_train.data.candidates import Pool, taken_names
from txagent_train.data.checks import check_call
from txagent_train.data.decompose import is_trained
from txagent_train.data.mentions import SPECIAL_TOOLS, count_mentions, is_identifier, joined, own_texts
from txagent_train.data.overlong import SUMMARIES

LIMIT = 5
"""How many tools a virtual call asks for, and gets where the toolbox has them."""
RAG_TOOL = ToolSpec(
    TOOL_RAG,
    "Retrieve related tools from the toolbox based on the provided description",
    {
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "The description of the tool capability required."},
            "limit": {"type": "integer", "description": "The number of tools to retrieve."},
        },
        "required": ["description", "limit"],
    },
)
"""Tool_RAG where neither the trace nor the toolbox has it; the words are those of ToolUniverse."""
THOUGHTS = (
    "None of the tools at hand fits the next step. I search for one that does this: {need}.",
    "I need a tool that is not listed yet: {need}. I look for it.",
    "The tools I have do not cover this: {need}. I search the toolbox.",
    "Before I go on I look for a suitable tool: {need}.",
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def with_virtual_calls(trace: Trace, pool: Pool, rng: random.Random, *, rag: ToolSpec, counts: Counter[str]) -> Trace:
    """The trace with some of its initial tools behind Tool_RAG calls.

    Args:
        pool: what Tool_RAG returns besides the tool that is asked for: its neighbours, then random ones.
        rag: the spec of Tool_RAG, for a trace that does not show it.
        counts: gets ``virtual_calls``; or ``virtual_unfit`` for a trace that has none since Tool_RAG takes other
            arguments than a text and a number.
    """
    first_use = _removable(trace)
    if not first_use:
        return trace
    chosen = rng.sample(list(first_use), rng.randint(1, len(first_use)))
    specs = {spec.name: spec for spec in trace.initial_tools}
    calls = {name: _call(specs.get(TOOL_RAG, rag), _need(specs[name])) for name in chosen}
    if None in calls.values():
        counts["virtual_unfit"] += 1
        return trace
    asked: dict[int, list[tuple[ToolSpec, ToolCall]]] = {}
    for name, call in calls.items():
        if call is not None:
            asked.setdefault(first_use[name], []).append((specs[name], call))
    taken = taken_names(trace)
    turns: list[Turn] = []
    number = 0
    for turn in trace.turns:
        if isinstance(turn, Step):
            if number in asked:
                turns.append(_search(asked[number], turn, pool, taken, rng))
            number += 1
        turns.append(turn)
    initial = tuple(spec for spec in trace.initial_tools if spec.name not in chosen)
    if TOOL_RAG not in specs:
        initial = (*initial, rag)
    counts["virtual_calls"] += len(chosen)
    metadata = _shifted(trace.metadata, sorted(asked))
    return replace(trace, initial_tools=initial, turns=tuple(turns), metadata=metadata)


def _removable(trace: Trace) -> dict[str, int]:
    """The initial tools that are called, each with the step of its first call; none that is named or found before."""
    initial = {spec.name for spec in trace.initial_tools} - SPECIAL_TOOLS
    found: dict[str, int] = {}
    said = [trace.system or ""]
    number = 0
    for turn in trace.turns:
        if isinstance(turn, UserMessage):
            said.append(turn.content)
            continue
        before = joined(said)
        for name in dict.fromkeys(call.name for call in turn.calls):
            if name in initial:
                initial.remove(name)
                if not count_mentions(before, name, quoted=not is_identifier(name)):
                    found[name] = number
        said.extend(own_texts(turn))
        initial.difference_update(spec.name for spec in turn.tools_added)
        number += 1
    return found


def _call(rag: ToolSpec, need: str) -> ToolCall | None:
    """The call that asks for a tool; None where Tool_RAG must be given more than a text and a number."""
    properties, required = rag.parameters.get("properties") or {}, rag.parameters.get("required") or []
    text = _argument(("string",), "description", properties, required)
    if text is None:
        return None
    values = {text: need, _argument(("integer", "number"), "limit", properties, required): LIMIT}
    call = ToolCall(TOOL_RAG, {name: values[name] for name in properties if name in values})
    try:
        check_call(call, {TOOL_RAG: rag})
    except DataError:
        return None
    return call


def _argument(types: Sequence[str], usual: str, properties: JsonObject, required: Sequence[str]) -> str | None:
    """The argument of a type that is meant: the one that must be given, or else the usual one, or the only text."""
    fitting = [name for name, schema in properties.items() if isinstance(schema, dict) and schema.get("type") in types]
    wanted = [name for name in fitting if name in required]
    if not wanted and usual in fitting:
        return usual
    wanted = wanted or (fitting if "string" in types else [])
    return wanted[0] if len(wanted) == 1 else None


def _search(
    tools: Sequence[tuple[ToolSpec, ToolCall]], use: Step, pool: Pool, taken: set[str], rng: random.Random
) -> Step:
    """The step that asks for tools, one call for each; it counts in training as the step that uses them."""
    results, added = [], []
    for index, (tool, _) in enumerate(tools):
        others = pool.nearest(tool.name, LIMIT - 1, taken)
        found = [tool, *others, *pool.drawn(LIMIT - 1 - len(others), taken, rng)]
        rng.shuffle(found)
        results.append(ToolResult(index, [spec.name for spec in found]))
        added.extend(found)
    return Step(
        thought=rng.choice(THOUGHTS).format(need="; ".join(_need(tool) for tool, _ in tools)),
        calls=tuple(call for _, call in tools),
        results=tuple(results),
        tools_added=tuple(added),
        train=is_trained(use),
        weight=use.weight,
    )


def _need(tool: ToolSpec) -> str:
    """What a tool is needed for: the first sentence of its description, or else the words of its name."""
    sentence = _SENTENCE_END.split(" ".join(tool.description.split()), maxsplit=1)[0].rstrip(".!?")
    if not sentence or count_mentions(sentence, tool.name, quoted=False):
        return re.sub(r"[\W_]+", " ", tool.name).strip() or tool.name
    # "Retrieve" becomes "retrieve", "DNA" stays.
    return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _shifted(metadata: JsonObject, inserted: Sequence[int]) -> JsonObject:
    """Stored summaries under the numbers that their steps have now."""
    summaries = metadata.get(SUMMARIES)
    if not isinstance(summaries, dict):
        return metadata
    numbers = {
        key: str(int(key) + sum(place <= int(key) for place in inserted)) if key.isdecimal() else key
        for key in summaries
    }
    return metadata | {SUMMARIES: {numbers[key]: text for key, text in summaries.items()}}
