from __future__ import annotations

from typing import Any

import pytest

from txagent_train.agent.tools import PythonTools, ToolOutcome
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, ToolCall, ToolSpec

DOSE = ToolSpec(
    "get_dose",
    "Dose of a drug.",
    {
        "type": "object",
        "properties": {"drug": {"type": "string"}, "weight_kg": {"type": "integer"}},
        "required": ["drug"],
    },
)
RAG = ToolSpec(
    TOOL_RAG, "Find tools.", {"type": "object", "properties": {"description": {"type": "string"}}, "required": []}
)


def get_dose(drug: str, weight_kg: int = 70) -> Any:
    if drug == "nothing":
        raise KeyError("no such drug")
    return {"drug": drug, "mg": weight_kg * 2}


def retrieve(description: str) -> ToolOutcome:
    return ToolOutcome([DOSE.name], tools_added=(DOSE,))


def tools(**options: Any) -> PythonTools:
    return PythonTools([DOSE, RAG], {DOSE.name: get_dose, RAG.name: retrieve}, **options)


def test_a_call_gives_what_the_function_returns() -> None:
    assert tools().call(ToolCall("get_dose", {"drug": "x", "weight_kg": 3})) == ToolOutcome({"drug": "x", "mg": 6})


def test_retrieval_adds_tools() -> None:
    assert tools().call(ToolCall(TOOL_RAG, {"description": "dose"})).tools_added == (DOSE,)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (ToolCall("get_doze", {}), "get_dose"),
        (ToolCall("get_dose", {}), "'drug' is a required property"),
        (ToolCall("get_dose", {"drug": 5}), "drug: 5 is not of type 'string'"),
        (ToolCall("get_dose", {"drug": "x", "weight_kg": True}), "weight_kg: True is not of type 'integer'"),
        (ToolCall("get_dose", {"drug": "x", "route": "oral"}), "'route' was unexpected"),
        (ToolCall("get_dose", {"drug": "nothing"}), "no such drug"),
        (ToolCall("get_dose", {"drug": "x" * 5, "weight_kg": "y" * 5000}), "..."),
    ],
)
def test_what_cannot_be_run_is_a_short_error_that_says_why(call: ToolCall, says: str) -> None:
    outcome = tools().call(call)
    assert outcome.is_error and isinstance(outcome.content, dict)
    message = outcome.content["error"]
    assert isinstance(message, str) and says in message and len(message) <= 300


def test_a_result_that_json_cannot_hold_is_an_error() -> None:
    broken = PythonTools([DOSE], {DOSE.name: lambda drug: {"mg": float("nan")}})
    assert broken.call(ToolCall("get_dose", {"drug": "x"})).is_error


def test_a_long_result_is_cut_and_marked() -> None:
    outcome = tools(max_result_chars=12).call(ToolCall("get_dose", {"drug": "x"}))
    assert outcome == ToolOutcome('{"drug": "x"', truncated=True)


def test_a_broken_schema_or_a_missing_function_is_found_at_once() -> None:
    with pytest.raises(DataError, match="not a JSON schema"):
        PythonTools([ToolSpec("t", "", {"type": "objekt"})], {"t": print})
    with pytest.raises(ValueError, match="functions name"):
        PythonTools([DOSE], {})
