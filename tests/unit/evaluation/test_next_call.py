from __future__ import annotations

import json

import pytest

from tests.support.scripted import ScriptedBackend
from tests.support.tokenizers import smollm2
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, StepExample, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.evaluation.comparison import compare
from txagent_train.evaluation.next_call import NextCallResult, Outcome, evaluate_next_calls
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import WireFormat

DOSE = ToolSpec("get_dose", "Dose.", {"type": "object", "properties": {"drug": {"type": "string"}}})
CALLS = (ToolCall("get_dose", {"drug": "a"}), ToolCall("get_dose", {"drug": "b"}))


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(smollm2(), WireFormat("chatml", "txagent", "call"))


def trace(name: str) -> Trace:
    return Trace(
        id=name,
        system=f"system of {name}",
        initial_tools=(DOSE,),
        turns=(
            UserMessage(f"{name}?"),
            Step("One.", calls=CALLS[:1], results=(ToolResult(0, 1),)),
            Step("Two.", calls=CALLS, results=(ToolResult(0, "SEEN"), ToolResult(1, 2))),
            Step("Done."),
        ),
        answer="3",
    )


def examples(*names: str) -> list[StepExample]:
    return [example for name in names for example in decompose(trace(name))]


def output(*calls: ToolCall) -> str:
    return "x[TOOL_CALLS]" + json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls])


def evaluate(renderer: Renderer, outputs: dict[str, list[str]], context_length: int = 8192) -> NextCallResult:
    backend = ScriptedBackend(renderer, outputs, context_length)
    return evaluate_next_calls(examples(*outputs), renderer=renderer, backend=backend, max_new_tokens=32)


def test_rates_groups_and_rows(renderer: Renderer) -> None:
    result = evaluate(
        renderer,
        {
            "trace-1": [output(CALLS[0]), output(*CALLS[::-1])],
            "trace-2": [output(CALLS[1]), "no call at all" + ScriptedBackend.CUT],
            "trace-3": ["x[FinalAnswer]42", output(ToolCall("get_doze", {}))],
        },
    )
    assert result.without_calls == 3 and len(result.items) == 6
    assert (result.exact.successes, result.names.successes) == (2, 3)
    assert {key: value.value for key, value in result.exact_by(lambda item: item.step_index).items()} == {
        0: pytest.approx(1 / 3),
        1: pytest.approx(1 / 3),
    }
    by_id = {item.id: item for item in result.items}
    assert by_id["trace-2#1"].outcome is Outcome.UNPARSABLE and by_id["trace-2#1"].text == "no call at all"
    assert not by_id["trace-2#1"].stopped and by_id["trace-2#0"].stopped
    assert by_id["trace-3#0"].outcome is Outcome.ANSWER and by_id["trace-3#0"].text == "x[FinalAnswer]42"
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["outcomes"] == {"calls": 4, "answer": 1, "unparsable": 1, "too_long": 0}
    assert shown["exact"]["value"] == pytest.approx(1 / 3) and shown["cut"] == 1 and len(shown["items"]) == 6
    assert shown["exact_by_number_of_calls"].keys() == {"1", "2"}


def test_the_recorded_history_is_given_whatever_the_model_said(renderer: Renderer) -> None:
    backend = ScriptedBackend(renderer, {"trace-1": ["wrong", "wrong"]})
    evaluate_next_calls(examples("trace-1"), renderer=renderer, backend=backend)
    assert backend.batches == [2] and "SEEN" not in backend.prompts[1] and "One." in backend.prompts[1]
    assert all("system of trace-1" in prompt and "wrong" not in prompt for prompt in backend.prompts)


def test_a_prompt_that_does_not_fit_counts_as_wrong(renderer: Renderer) -> None:
    result = evaluate(renderer, {"trace-1": []}, context_length=40)
    assert [item.outcome for item in result.items] == [Outcome.TOO_LONG] * 2
    assert result.exact.successes == 0 and result.exact.total == 2 and result.to_json()["cut"] == 0


def test_ids_must_differ(renderer: Renderer) -> None:
    with pytest.raises(DataError, match="same id"):
        evaluate_next_calls(examples("a", "a"), renderer=renderer, backend=ScriptedBackend(renderer, {}))


def test_base_against_trained(renderer: Renderer) -> None:
    names = [f"trace-{number}" for number in range(10, 18)]
    base = evaluate(renderer, {name: ["", output(*CALLS)] for name in names})
    trained = evaluate(renderer, {name: [output(CALLS[0]), output(*CALLS)] for name in names})
    exact, _ = compare(base, trained)
    assert (exact.metric, exact.base.value, exact.trained.value) == ("next call exact", 0.5, 1.0)
    assert (exact.test.only_first, exact.test.only_second) == (0, 8)
    assert exact.to_json()["p_value"] == pytest.approx(2 / 2**8)
    with pytest.raises(DataError, match="in one result only"):
        compare(base, evaluate(renderer, {"other": ["", ""]}))
