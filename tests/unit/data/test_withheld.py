from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.augmentation import GET_DOSE, TOOLS
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Step, StepStatus, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.virtual import RAG_TOOL
from txagent_train.data.withheld import Withheld

WITHHELD = Withheld(frozenset({"checkPair", "search"}), "held_out_tool", "which is held out")
USE = Step(calls=(ToolCall("get_dose", {"drug_name": "a", "limit": 1}),), results=(ToolResult(0, "checkPair"),))
TRACE = Trace("t", (UserMessage("?"), USE, Step("So.")), answer="A.", initial_tools=(GET_DOSE, RAG_TOOL))


def _with(*steps: Step, **fields: Any) -> Trace:
    return replace(TRACE, turns=(TRACE.turns[0], *steps, *TRACE.turns[1:]), **fields)


@pytest.mark.parametrize(
    ("trace", "step"),
    [
        (_with(USE, replace(USE, calls=(ToolCall("search", {}),))), 1),
        (_with(replace(USE, thought="Or checkPair?")), 0),
        (_with(Step(raw_output="checkPair(", status=StepStatus.UNPARSABLE)), 0),
        (replace(TRACE, answer="Ask checkPair."), 1),
    ],
)
def test_a_trace_that_uses_one_is_left_out(trace: Trace, step: int) -> None:
    with pytest.raises(DataError, match=rf"trace t, step {step}: the trace uses \w+, which is held out") as caught:
        WITHHELD.check(trace)
    assert caught.value.reason == "held_out_tool"


def test_an_ordinary_word_is_no_use() -> None:
    WITHHELD.check(_with(replace(USE, thought="I search.")))


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (["get_dose", "checkPair", "search"], ["get_dose"]),
        ([{"name": "checkPair", "x": 1}, {"name": "get_dose"}], [{"name": "get_dose"}]),
        ([{"type": "function", "function": {"name": "search"}}], []),
        ({"tools": ["checkPair"], "search": 0.5}, {"tools": []}),
    ],
)
def test_one_that_is_only_offered_is_not_shown(content: Any, rest: Any) -> None:
    rag = Step(
        calls=(ToolCall(TOOL_RAG, {"description": "x", "limit": 2}),),
        results=(ToolResult(0, content),),
        tools_added=(TOOLS[2], GET_DOSE),
    )
    trace = _with(rag, initial_tools=(TOOLS[4], *TRACE.initial_tools))
    WITHHELD.check(trace)
    hidden = WITHHELD.hide(trace)
    assert hidden.initial_tools == TRACE.initial_tools
    assert hidden.steps[0].tools_added == (GET_DOSE,) and hidden.steps[0].results[0].content == rest
    assert hidden.turns[2:] == trace.turns[2:] and WITHHELD.count(trace) == 2
    assert WITHHELD.hide(hidden) is hidden
