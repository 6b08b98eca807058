from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from tests.support.augmentation import GET_DOSE, TOOLS, tool, traces
from txagent_train.core.records import (
    TOOL_RAG,
    Step,
    StepStatus,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    UserMessage,
)
from txagent_train.data.candidates import Neighbours, Pool
from txagent_train.data.checks import check_calls
from txagent_train.data.decompose import is_trained
from txagent_train.data.overlong import SUMMARIES
from txagent_train.data.virtual import LIMIT, RAG_TOOL, with_virtual_calls

ROUTE = TOOLS[5]
MORE = tuple(tool(f"more_{number}", f"Retrieve {number}.") for number in range(9))
POOL = Pool({spec.name: spec for spec in (*TOOLS, *MORE)}, Neighbours({"get_dose": ("get_dose_form", "search")}))
TRACE = Trace(
    "t",
    (
        UserMessage("What?"),
        Step(
            "Both.",
            calls=(ToolCall("get_dose", {"drug_name": "a", "limit": 1}), ToolCall("lookup_route", {"drug_name": "a"})),
            results=(ToolResult(0, 1), ToolResult(1, "oral")),
            weight=2.0,
        ),
        UserMessage("And b?"),
        Step(calls=(ToolCall("get_dose", {"drug_name": "b", "limit": 1}),), results=(ToolResult(0, 2),)),
        Step("So."),
    ),
    answer="A.",
    initial_tools=(GET_DOSE, ROUTE),
    metadata={SUMMARIES: {"0": "first", "1": "second"}},
)


def _made(trace: Trace, seed: int, rag: ToolSpec = RAG_TOOL) -> tuple[Trace, int]:
    counts: Counter[str] = Counter()
    made = with_virtual_calls(trace, POOL, random.Random(seed), rag=rag, counts=counts)
    assert counts["virtual_calls"] or made is trace
    return made, counts["virtual_calls"]


def test_a_tool_is_searched_for_right_before_its_first_use() -> None:
    counts = Counter()
    for seed in range(60):
        made, count = _made(TRACE, seed)
        counts[count] += 1
        search, use = made.steps[0], made.steps[1]
        assert use == TRACE.steps[0] and made.turns[3:] == TRACE.turns[2:]
        gone = {spec.name for spec in TRACE.initial_tools} - {spec.name for spec in made.initial_tools}
        assert len(gone) == count == len(search.calls) and made.initial_tools[-1] == RAG_TOOL
        assert {call.name for call in search.calls} == {TOOL_RAG} and search.weight == 2.0
        listed = [name for result in search.results for name in result.content]
        assert listed == [spec.name for spec in search.tools_added] and gone <= set(listed)
        assert len(set(listed)) == len(listed) == LIMIT * count
        assert all(name not in search.thought for name in gone)
        if gone == {"get_dose"}:
            assert {"get_dose_form", "search"} < set(listed)
            assert search.calls[0].arguments == {"description": "retrieve the dose of a drug", "limit": LIMIT}
        if gone == {"lookup_route"}:  # it has no description
            assert search.calls[0].arguments["description"] == "lookup route"
        assert made.metadata[SUMMARIES] == {"1": "first", "2": "second"}
    assert set(counts) == {1, 2}


def test_the_place_of_the_tool_among_what_is_found_is_any() -> None:
    one = replace(TRACE, initial_tools=(GET_DOSE,))
    places = Counter(_made(one, seed)[0].steps[0].results[0].content.index("get_dose") for seed in range(200))
    assert set(places) == set(range(LIMIT))


def test_tools_that_are_named_or_found_before_stay() -> None:
    asked = replace(TRACE, turns=(UserMessage("What do get_dose and lookup_route say?"), *TRACE.turns[1:]))
    assert _made(asked, 0) == (asked, 0)
    found = Step(
        calls=(ToolCall(TOOL_RAG, {"description": "x", "limit": 2}),),
        results=(ToolResult(0, ["get_dose", "lookup_route"]),),
        tools_added=(GET_DOSE, ROUTE),
    )
    trace = replace(
        TRACE, turns=(TRACE.turns[0], found, *TRACE.turns[1:]), initial_tools=(*TRACE.initial_tools, RAG_TOOL)
    )
    assert _made(trace, 0) == (trace, 0)


def test_tool_rag_that_is_shown_is_kept() -> None:
    own = replace(RAG_TOOL, description="Mine.")
    made, _ = _made(replace(TRACE, initial_tools=(own, *TRACE.initial_tools)), 0)
    assert [spec for spec in made.initial_tools if spec.name == TOOL_RAG] == [own]


@settings(max_examples=100, deadline=None)
@given(trace=traces())
def test_calls_still_name_tools_that_are_there(trace: Trace) -> None:
    made, count = _made(trace, 1)
    check_calls(made)
    assert (made == trace) == (count == 0)
    assert sum(len(step.calls) for step in made.steps) == sum(len(step.calls) for step in trace.steps) + count


def _rag(required: list[str], **properties: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(TOOL_RAG, "Find tools.", parameters)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize(
    ("rag", "arguments"),
    [
        (_rag(["query"], query=TEXT), {"query": "NEED"}),
        (_rag([], query=TEXT), {"query": "NEED"}),
        (_rag(["query", "k"], k=NUMBER, query=TEXT), {"k": LIMIT, "query": "NEED"}),
        (_rag(["query"], query=TEXT, limit=NUMBER, page=NUMBER), {"query": "NEED", "limit": LIMIT}),
        (_rag(["query"], query=TEXT, page=NUMBER), {"query": "NEED"}),
        (_rag([], note=TEXT, description=TEXT), {"description": "NEED"}),
        (_rag(["k"], description=TEXT, k={"type": "number"}), {"description": "NEED", "k": LIMIT}),
    ],
)
def test_tool_rag_is_asked_as_its_schema_wants(rag: ToolSpec, arguments: dict[str, Any]) -> None:
    for trace in (TRACE, replace(TRACE, initial_tools=(rag, *TRACE.initial_tools))):
        made, count = _made(trace, 0, rag)
        assert count
        check_calls(made)
        for call in made.steps[0].calls:
            needs = [value for value in call.arguments.values() if isinstance(value, str)]
            assert call.arguments == {name: needs[0] if value == "NEED" else value for name, value in arguments.items()}
            assert list(call.arguments) == list(arguments)


@pytest.mark.parametrize(
    "rag",
    [
        _rag([]),
        _rag([], query=TEXT, other=TEXT),
        _rag(["query", "other"], query=TEXT, other=TEXT),
        _rag(["query", "deep"], query=TEXT, deep={"type": "boolean"}),
        _rag(["query"], query={"type": "string", "enum": ["dose"]}),
        _rag(["query", "k"], query=TEXT, k={"type": "integer", "maximum": 3}),
        _rag(["query"], query={"type": "nonsense"}),
    ],
)
def test_a_tool_rag_that_wants_more_is_not_asked_and_counted(rag: ToolSpec) -> None:
    counts: Counter[str] = Counter()
    assert with_virtual_calls(TRACE, POOL, random.Random(0), rag=rag, counts=counts) is TRACE
    assert counts == {"virtual_unfit": 1}


@pytest.mark.parametrize(
    ("change", "trained"),
    [
        ({}, True),
        ({"status": StepStatus.REJECTED}, False),
        ({"status": StepStatus.FORCED}, False),
        ({"train": False}, False),
        ({"weight": 0.0}, False),
    ],
)
def test_the_search_is_trained_where_the_use_is(change: dict[str, Any], trained: bool) -> None:
    use = replace(TRACE.steps[0], **change)
    made, _ = _made(replace(TRACE, turns=(TRACE.turns[0], use, *TRACE.turns[2:])), 0)
    assert made.steps[0].calls[0].name == TOOL_RAG and is_trained(made.steps[0]) == trained
