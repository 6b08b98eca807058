"""Records refuse what no stage could use, and say where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support.traces import odd_trace, traces
from txagent_train.core.codec import trace_from_json, trace_to_json
from txagent_train.core.errors import DataError, RecipeError
from txagent_train.core.records import Step, StepStatus, ToolCall, ToolResult, Trace, UserMessage

QUESTION = UserMessage("What is the dose?")
CALLED = Step("I look.", calls=(ToolCall("f", {}),), results=(ToolResult(0, "5 mg"),))


@given(traces())
def test_native_round_trip(trace: Trace) -> None:
    assert trace_from_json(trace_to_json(trace)) == trace


def test_round_trip_keeps_order_and_number_types() -> None:
    arguments = {"b": 1.0, "a": 1, "c": True}
    trace = Trace("t", (QUESTION, Step("x", calls=(ToolCall("f", arguments),))))
    read = trace_from_json(trace_to_json(trace)).steps[0].calls[0].arguments
    assert [(key, type(value)) for key, value in read.items()] == [("b", float), ("a", int), ("c", bool)]


@pytest.mark.parametrize(
    ("turns", "answer", "reason", "step"),
    [
        ((), None, "empty_trace", None),
        ((QUESTION,), None, "no_steps", None),
        ((QUESTION, Step()), None, "empty_step", 0),
        ((QUESTION, CALLED, Step("a", calls=(ToolCall("f", {}),)), CALLED), None, "call_without_result", 1),
        ((QUESTION, CALLED), "yes", "answer_misplaced", None),
        ((QUESTION, CALLED, Step()), " ", "empty_answer", None),
    ],
)
def test_turns_must_fit_each_other(turns: tuple[Any, ...], answer: str | None, reason: str, step: int | None) -> None:
    with pytest.raises(DataError, match="trace t") as caught:
        Trace("t", turns, answer)
    assert (caught.value.reason, caught.value.step) == (reason, step)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ToolCall("", {}),
        lambda: ToolCall("f", {"x": float("nan")}),
        lambda: ToolCall("f", {1: 2}),
        lambda: ToolCall("f", [1]),
        lambda: ToolResult(True, "x"),
        lambda: ToolResult(0, "x", is_error="yes"),
        lambda: UserMessage(" "),
        lambda: Step("x", weight=-1.0),
        lambda: Step("x", train="yes"),
        lambda: Step("x", summary=5),
        lambda: Step(status=StepStatus.UNPARSABLE),
        lambda: Step("x", results=(ToolResult(0, "x"),)),
        lambda: Step("x", calls=(ToolCall("f", {}),), results=(ToolResult(0, "x"), ToolResult(0, "y"))),
        lambda: Trace("t", (QUESTION, Step("x")), 5),
        lambda: Trace("t", (QUESTION, Step("x")), system=["x"]),
        lambda: Trace("t", (QUESTION, Step("x")), metadata=[]),
        lambda: Trace("t", (QUESTION, Step("x")), round="1"),
        lambda: Trace("t", (QUESTION, Step("x")), entities=(1,)),
        lambda: Trace("", (QUESTION, Step("x"))),
    ],
)
def test_wrong_values_are_refused(make: Any) -> None:
    with pytest.raises(DataError):
        make()


def test_native_objects_must_have_known_keys() -> None:
    with pytest.raises(DataError, match="unknown key 'anwser'"):
        trace_from_json({"id": "t", "turns": [{"user": "q"}, {"step": {"thought": "x"}}], "anwser": "y"})
    with pytest.raises(DataError, match=r"step 1.*unknown key 'thougth'"):
        trace_from_json({"id": "t", "turns": [{"user": "q"}, {"step": {"thought": "x"}}, {"step": {"thougth": "x"}}]})
    with pytest.raises(DataError, match="lacks the key 'turns'"):
        trace_from_json({"id": "t"})


def test_views_of_a_trace() -> None:
    trace = odd_trace()
    assert [spec.name for spec in trace.tools()] == ["get_dose", "Tool_RAG", "check_pair"]
    assert trace.is_complete and trace.question.startswith("  What")
    assert Trace("t", (QUESTION, Step("x", calls=(ToolCall("f", {}),)))).is_complete
    assert not Trace("t", (QUESTION, CALLED, CALLED)).is_complete


def test_errors_name_the_place_and_the_remedy() -> None:
    error = DataError("bad", path="a.jsonl", line=3, trace_id="t", step=2, fix="mend it")
    assert str(error) == "a.jsonl:3, trace t, step 2: bad\n  -> mend it"
    assert DataError("bad").at(path="a.jsonl", line=1, trace_id="t").line == 1
    assert "2 problems in the recipe:\n  - a\n  - b" in str(RecipeError("r.yaml", ["a", "b"]))


def test_a_summary_stands_in_for_results() -> None:
    asked = Step("Look.", calls=(ToolCall("f", {}), ToolCall("g", {})), summary="Both are known.")
    assert Trace("t", (UserMessage("q?"), asked, Step()), answer="a").steps[0].unanswered == (0, 1)
    assert not Trace("t", (UserMessage("q?"), asked)).is_complete
