from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.scripted import ScriptedBackend
from tests.support.tokenizers import smollm2
from txagent_train.agent.loop import AgentSettings
from txagent_train.agent.tools import PythonTools
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, ToolSpec, Trace, UserMessage
from txagent_train.evaluation.comparison import compare
from txagent_train.evaluation.questions import QuestionResult, evaluate_questions, gold_question
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import WireFormat

DOSE = ToolSpec("get_dose", "Dose.", {"type": "object", "properties": {"drug": {"type": "string"}}})
TOOLS = PythonTools([DOSE], {"get_dose": lambda drug: {"mg": 500}})
CALL = 'Look.[TOOL_CALLS][{"name": "get_dose", "arguments": {"drug": "x"}}]'


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(smollm2(), WireFormat("chatml", "txagent", "call"))


def recorded(name: str, gold: object) -> Trace:
    return Trace(
        id=name,
        turns=(UserMessage(f"Question {name}?"), Step("Known.")),
        answer="irrelevant",
        initial_tools=(DOSE,),
        metadata={"gold": gold},
    )


def evaluate(renderer: Renderer, outputs: dict[str, list[str]]) -> QuestionResult:
    return evaluate_questions(
        [gold_question(recorded(name, ["500 mg", "half a gram"])) for name in outputs],
        backend=ScriptedBackend(renderer, outputs),
        renderer=renderer,
        executor=TOOLS,
        settings=AgentSettings(max_steps=2, max_new_tokens=32),
        model_name="m",
    )


def test_answers_are_scored_and_traces_kept(renderer: Renderer) -> None:
    result = evaluate(
        renderer,
        {
            "aa": [CALL, "So.[FinalAnswer]The dose is 500mg."],
            "bb": ["[FinalAnswer]5 mg"],
            "cc": [CALL.replace("dose", "doze"), "nothing", "Half a gram, I guess"],
            "dd": [CALL, CALL, ""],
        },
    )
    assert [item.correct for item in result.items] == [True, False, True, False]
    assert result.accuracy.value == 0.5
    assert [trace.answer for trace in result.traces] == ["The dose is 500mg.", "5 mg", "Half a gram, I guess", None]
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["stop_reasons"] == {"answer": 2, "step_limit": 1, "no_answer": 1}
    assert (shown["calls"], shown["failed_calls"], shown["unparsable_steps"]) == (4, 1, 1)
    assert shown["items"][3] == {
        "id": "dd",
        "question": "Question dd?",
        "gold": ["500 mg", "half a gram"],
        "answer": None,
        "correct": False,
        "stop_reason": "no_answer",
        "steps": 3,
    }


def test_base_against_trained(renderer: Renderer) -> None:
    right, wrong = "[FinalAnswer]500 mg", "[FinalAnswer]no idea"
    base = evaluate(renderer, {"aa": [wrong], "bb": [right]})
    (row,) = compare(base, evaluate(renderer, {"aa": [right], "bb": [right]}))
    assert (row.metric, row.base.value, row.trained.value, row.test.p_value) == ("answer", 0.5, 1.0, 1.0)


@pytest.mark.parametrize("gold", [None, 5, ["a", None], [], "", ["."]])
def test_a_gold_answer_is_needed(gold: object) -> None:
    with pytest.raises(DataError):
        gold_question(recorded("t", gold))
    with pytest.raises(DataError, match=r"metadata\.gold"):
        gold_question(replace(recorded("t", "x"), metadata={}))


def test_ids_must_differ(renderer: Renderer) -> None:
    question = gold_question(recorded("t", "x"))
    with pytest.raises(DataError, match="same id"):
        evaluate_questions(
            [question, question],
            backend=ScriptedBackend(renderer, {}),
            renderer=renderer,
            executor=TOOLS,
            settings=AgentSettings(),
        )
