"""What is written is what is read: targets by the parser of model output, whole traces by the importers.

Everything here is text; tokens are the matter of test_targets_parse.py and test_template_parity.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.traces import odd_trace, traces
from tests.support.wire_records import HERMES, TXAGENT, as_read_back, clean, cleaner, hermes_record, txagent_record
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Step, StepExample, StepStatus, ToolSpec, Trace
from txagent_train.data.decompose import decompose
from txagent_train.data.importers import athena, parser_for, txagent
from txagent_train.data.reading import read_records
from txagent_train.rendering.controls import well_formed, well_formed_json
from txagent_train.rendering.parse import parse_output
from txagent_train.rendering.syntax import target_text
from txagent_train.rendering.wire import FinishStyle, SyntaxName, WireFormat

DATA = {
    "genegpt/traces.jsonl.gz": "openai",
    "openai_messages/tau_airline.jsonl.gz": "openai",
    "sharegpt/glaive_toolcall_en.json": "sharegpt",
    "toolbench/train_messages.jsonl": "toolbench",
    "biotool/sharegpt_train.json": "sharegpt",
}
FORMATS: list[tuple[SyntaxName, FinishStyle]] = [
    ("txagent", "call"), ("txagent", "text"), ("hermes", "call"), ("hermes", "text"),
]  # fmt: skip


def check_target(example: StepExample, wire: WireFormat) -> str:
    """A target says after parsing what the step says; returns the reason where the format has no words for it."""
    try:
        text = target_text(example, wire, cleaner())
    except DataError as error:
        return error.reason
    if not example.tools:  # then there is no Finish, and an answer is plain text
        wire = replace(wire, finish="text")
    parsed = parse_output(text, wire)
    step = example.target
    assert parsed.step.status is StepStatus.OK and parsed.step.raw_output is None
    assert _json(parsed.step.calls) == _json(step.calls)
    assert parsed.step.reasoning == clean(step.reasoning).strip()
    thought = clean(step.thought).strip()
    answer = clean(example.trace.answer or "").strip() if example.is_final else ""
    if step.calls:
        assert (parsed.step.thought, parsed.answer) == (thought, None)
    elif wire.finish == "call" and example.is_final:
        assert (parsed.step.thought, parsed.answer) == (thought, answer)
    else:  # one text for the user
        assert (parsed.step.thought, parsed.answer) == ("", "\n\n".join(part for part in (thought, answer) if part))
    return ""


def _json(calls: Any) -> str:
    """The calls as text, for which the order of keys and the types of numbers count."""
    return json.dumps([(well_formed(call.name), well_formed_json(call.arguments)) for call in calls])


@pytest.mark.parametrize("name", DATA)
def test_targets_of_real_traces(name: str, shared_data: Callable[[str], Path]) -> None:
    path, parse = shared_data(name), parser_for(DATA[name])
    checked, faults = 0, Counter[str]()
    for line, record in read_records(path):
        try:
            trace = parse(record, path=path, line=line)
        except DataError as error:
            faults[error.reason] += 1
            continue
        for example in decompose(trace):
            for syntax, finish in FORMATS:
                reason = check_target(example, WireFormat("chatml", syntax, finish))
                assert reason in ("", "step_without_call"), (trace.id, reason)
                checked += not reason
    assert checked > 4 * faults.total() and checked >= 50, faults


@pytest.mark.parametrize(("syntax", "finish"), FORMATS)
def test_targets_of_any_trace(syntax: SyntaxName, finish: FinishStyle) -> None:
    wire = WireFormat("chatml", syntax, finish)

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(traces())
    def check(trace: Trace) -> None:
        for example in decompose(trace):
            if not _is_json_text(example, wire):
                check_target(example, wire)

    check()


def _is_json_text(example: StepExample, wire: WireFormat) -> bool:
    """An answer in plain text that is itself the JSON of a call cannot be told from one (``finish: text``)."""
    return wire.finish == "text" and not example.target.calls and target_text(example, wire, cleaner())[:1] in "{[`"


def _readable(trace: Trace) -> JsonObject:
    tools = [replace(spec, origin={}) for spec in trace.initial_tools]
    turns = [
        replace(turn, tools_added=tuple(replace(spec, origin={}) for spec in turn.tools_added))
        if isinstance(turn, Step)
        else turn
        for turn in trace.turns
    ]
    return {"turns": turns, "answer": trace.answer, "system": trace.system, "tools": tools}


def _as_text(parts: JsonObject) -> str:
    """As JSON text, so that 1, 1.0 and true differ, and so do two orders of keys."""
    whole = Trace("t", tuple(parts["turns"]), parts["answer"], parts["system"], tuple(parts["tools"]))
    return json.dumps(trace_to_json(whole))


def _check_txagent(trace: Trace) -> None:
    read = txagent.parse(txagent_record(trace), path=Path("x.jsonl"), line=1)
    assert _as_text(_readable(read)) == _as_text(as_read_back(trace, TXAGENT))


def _check_hermes(trace: Trace, blocks: bool) -> None:
    read = athena.parse(hermes_record(trace, blocks=blocks), path=Path("x.jsonl"), line=1)
    assert _as_text(_readable(read)) == _as_text(as_read_back(trace, HERMES))


def _with_tool(trace: Trace) -> Trace:
    """A trace without tools is plain chat, and its answer a reply like any other."""
    tool = ToolSpec("only", "The only tool.", {"type": "object", "properties": {}})
    return trace if trace.initial_tools else replace(trace, initial_tools=(tool,))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(traces())
def test_any_trace_in_txagents_form_is_read_back(trace: Trace) -> None:
    _check_txagent(_with_tool(trace))


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(traces(), st.booleans())
def test_any_trace_in_hermes_form_is_read_back(trace: Trace, blocks: bool) -> None:
    _check_hermes(_with_tool(trace), blocks)


def test_the_odd_trace_is_read_back() -> None:
    _check_txagent(odd_trace())
    for blocks in (True, False):
        _check_hermes(odd_trace(), blocks)


def test_real_traces_are_read_back(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("genegpt/traces.jsonl.gz")
    for line, record in read_records(path):
        if line % 10 == 0:
            trace = parser_for("openai")(record, path=path, line=line)
            _check_txagent(trace)
            _check_hermes(trace, line % 20 == 0)
