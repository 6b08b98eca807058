from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from txagent_train.core.errors import DataError
from txagent_train.core.records import (
    FINISH,
    TOOL_RAG,
    Step,
    StepStatus,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    UserMessage,
)
from txagent_train.data.checks import check_calls, check_complete, check_names, check_text

SCHEMA = {
    "type": "object",
    "properties": {"drug": {"type": "string"}, "rows": {"type": "integer", "minimum": 1}},
    "required": ["drug"],
}
DOSE = ToolSpec("get_dose", "", SCHEMA)
RAG = ToolSpec(TOOL_RAG, "", {"type": "object"})
ASK = UserMessage("q?")
ANSWER = Step()


def _step(name: str = "get_dose", **arguments: Any) -> Step:
    return Step(calls=(ToolCall(name, arguments),), results=(ToolResult(0, "r"),))


def _trace(*turns: Any, tools: tuple[ToolSpec, ...] = (DOSE,), answer: str | None = "a") -> Trace:
    return Trace("t", (ASK, *turns), answer=answer, initial_tools=tools)


def _reason(trace: Trace) -> tuple[str, int | None]:
    with pytest.raises(DataError) as caught:
        check_calls(trace)
    assert caught.value.trace_id == "t"
    return caught.value.reason, caught.value.step


def test_sound_calls_pass() -> None:
    check_calls(_trace(_step(drug="x"), _step(drug="x", rows=2), ANSWER))


@pytest.mark.parametrize(
    "arguments", [{}, {"drug": 1}, {"drug": "x", "rows": 0}, {"drug": "x", "rows": True}, {"drug": None}]
)
def test_arguments_that_break_the_schema(arguments: dict[str, Any]) -> None:
    assert _reason(_trace(_step(drug="x"), _step(**arguments), ANSWER)) == ("invalid_arguments", 1)


def test_a_long_argument_is_not_quoted_whole() -> None:
    with pytest.raises(DataError) as caught:
        check_calls(_trace(_step(drug=["x" * 10_000]), ANSWER))
    assert len(str(caught.value)) < 500


def test_undeclared_tools() -> None:
    assert _reason(_trace(_step(drug="x"), _step("other"), ANSWER)) == ("undeclared_tool", 1)
    assert _reason(_trace(_step(drug="x"), ANSWER, tools=())) == ("undeclared_tool", 0)


def test_a_retrieved_tool_can_be_called_from_the_next_step_on() -> None:
    retrieve = replace(_step(TOOL_RAG, description="dose"), tools_added=(DOSE,))
    check_calls(_trace(retrieve, _step(drug="x"), ANSWER, tools=(RAG,)))
    too_early = replace(_step(drug="x"), tools_added=(DOSE,))
    assert _reason(_trace(too_early, ANSWER, tools=(RAG,))) == ("undeclared_tool", 0)


@pytest.mark.parametrize("change", [{"train": False}, {"weight": 0.0}, {"status": StepStatus.REJECTED}])
def test_a_wrong_call_is_allowed_where_it_is_not_trained_on(change: dict[str, Any]) -> None:
    check_calls(_trace(replace(_step("other"), **change), _step(drug="x"), ANSWER))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "object", "properties": {"drug": {"type": "string", "required": True}}},
        {"type": "object", "properties": {"drug": {"enum": None}}},
        {"properties": {"drug": {"pattern": "("}}},
        {"$ref": "#/definitions/absent"},
        {"$ref": "http://127.0.0.1:9/never-fetched.json"},
        {"$ref": "#"},
        {"$id": "http://[", "$ref": "x"},
        {"$ref": "http://[x"},
        {"$id": 5},
    ],
)
def test_a_schema_that_cannot_be_used(schema: dict[str, Any]) -> None:
    trace = _trace(_step(drug="x"), ANSWER, tools=(ToolSpec("get_dose", "", schema),))
    assert _reason(trace) == ("invalid_tool_schema", 0)


def test_numbers_that_the_validator_cannot_compare() -> None:
    schema = {"properties": {"drug": {"multipleOf": 0.5}}}
    trace = _trace(_step(drug=10**400), ANSWER, tools=(ToolSpec("get_dose", "", schema),))
    assert _reason(trace) == ("invalid_tool_schema", 0)


def test_references_inside_a_schema_are_followed() -> None:
    schema = {"$defs": {"d": {"type": "string"}}, "type": "object", "properties": {"drug": {"$ref": "#/$defs/d"}}}
    tools = (ToolSpec("get_dose", "", schema),)
    check_calls(_trace(_step(drug="x"), ANSWER, tools=tools))
    assert _reason(_trace(_step(drug=1), ANSWER, tools=tools)) == ("invalid_arguments", 0)


@pytest.mark.parametrize(
    ("turns", "answer", "complete"),
    [
        ((_step(drug="x"), ANSWER), "a", True),
        ((Step(calls=(ToolCall("get_dose", {}),)),), None, True),
        ((_step(drug="x"),), None, False),
        ((_step(drug="x"), _step(drug="y")), None, False),
        ((_step(drug="x"), Step(thought="Hm.")), None, False),
        ((_step(drug="x"), UserMessage("?")), None, False),
        ((Step(thought="Hm."), UserMessage("Bye.")), None, False),
    ],
)
def test_completeness(turns: tuple[Any, ...], answer: str | None, complete: bool) -> None:
    trace = _trace(*turns, answer=answer)
    if complete:
        check_complete(trace)
    else:
        with pytest.raises(DataError, match="the trace ends with") as caught:
            check_complete(trace)
        assert caught.value.reason == "incomplete"


def test_finish_is_reserved() -> None:
    check_names(_trace(_step(drug="x"), ANSWER))
    finish = ToolSpec(FINISH, "", {})
    for trace in (_trace(_step(FINISH), ANSWER), _trace(ANSWER, tools=(finish,))):
        with pytest.raises(DataError) as caught:
            check_names(trace)
        assert caught.value.reason == "reserved_tool_name"


def test_half_a_surrogate_pair_cannot_be_written() -> None:
    check_text(_trace(Step(thought="👩‍⚕️"), ANSWER))
    for trace in (_trace(Step(thought="\ud83d"), ANSWER), _trace(_step(drug={"\ude00": 1}), ANSWER)):
        with pytest.raises(DataError) as caught:
            check_text(trace)
        assert caught.value.reason == "lone_surrogate"
