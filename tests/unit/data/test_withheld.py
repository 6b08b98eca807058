from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from tests.support.augmentation import GET_DOSE, TOOLS, tool
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Step, StepStatus, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.overlong import SUMMARIES
from txagent_train.data.virtual import RAG_TOOL
from txagent_train.data.withheld import Withheld

WITHHELD = Withheld(frozenset({"checkPair", "search"}), "held_out_tool", "which is held out")
USE = Step(calls=(ToolCall("get_dose", {"drug_name": "a", "limit": 1}),), results=(ToolResult(0, "2 mg"),))
TRACE = Trace("t", (UserMessage("?"), USE, Step("So.")), answer="A.", initial_tools=(GET_DOSE, RAG_TOOL))


def _with(*steps: Step, **fields: Any) -> Trace:
    return replace(TRACE, turns=(TRACE.turns[0], *steps, *TRACE.turns[1:]), **fields)


def _rag(content: Any, **fields: Any) -> Step:
    call = ToolCall(TOOL_RAG, {"description": "x", "limit": 2})
    return Step(calls=(call,), results=(ToolResult(0, content),), **fields)


def _result(content: Any, **fields: Any) -> Step:
    return replace(USE, results=(ToolResult(0, content, **fields),))


@pytest.mark.parametrize(
    ("trace", "step"),
    [
        (_with(USE, replace(USE, calls=(ToolCall("search", {}),))), 1),
        (_with(replace(USE, calls=(ToolCall("CheckPair", {}),))), 0),
        (_with(replace(USE, calls=(ToolCall("functions.checkPair", {}),))), 0),
        (_with(replace(USE, thought="Or checkPair?")), 0),
        (_with(replace(USE, thought="Or CHECKPAIR?")), 0),
        (_with(replace(USE, thought="I call search(x).")), 0),
        (_with(replace(USE, reasoning="`Search` would do")), 0),
        (_with(Step(raw_output="checkPair(", status=StepStatus.UNPARSABLE)), 0),
        (_with(replace(USE, summary="checkPair said so")), 0),
        (_with(_result("See checkPair.")), 0),
        (_with(_result({"type": ["search"]})), 0),
        (_with(_result(json.dumps({"text": "one\ncheckPair"}))), 0),
        (_with(_result("checkPair is better", is_error=True)), 0),
        (_with(_rag("Only checkPair.")), 0),
        (_with(_rag({"name": "checkPair"})), 0),
        (_with(replace(USE, calls=(ToolCall("get_dose", {"drug_name": "checkPair"}),))), 0),
        (replace(TRACE, answer="Ask checkPair."), 1),
        (replace(TRACE, system="You have checkPair."), None),
        (replace(TRACE, turns=(UserMessage("Use checkPair!"), *TRACE.turns[1:])), None),
        (replace(TRACE, metadata={SUMMARIES: {"0": "checkPair said so"}}), None),
        (replace(TRACE, initial_tools=(replace(GET_DOSE, description="Not like checkPair."), RAG_TOOL)), None),
    ],
)
def test_a_trace_that_uses_or_names_one_is_left_out(trace: Trace, step: int | None) -> None:
    at = "" if step is None else f", step {step}"
    with pytest.raises(DataError, match=rf"trace t{at}: the trace (uses|names|shows) .*, which is held out") as caught:
        WITHHELD.check(WITHHELD.hide(trace))
    assert caught.value.reason == "held_out_tool"


@pytest.mark.parametrize(
    "trace",
    [
        _with(replace(USE, thought="I search; searching, research(x), my_checkPair.")),
        _with(replace(USE, summary="known")),
        replace(TRACE, metadata={"kind": "checkPair"}),
        replace(TRACE, system="Search well."),
        _with(_result({"search": 1, "text": ["The search", "search on"]})),
        _with(_result('{"search": 1, "x": "{\\"search\\": 2}"}')),
    ],
)
def test_what_names_none_is_no_use(trace: Trace) -> None:
    WITHHELD.check(trace)
    assert WITHHELD.hide(trace) is trace


def test_what_the_model_does_not_read_names_none() -> None:
    """A summary stands in for the results; nested traces are not shown."""
    hidden = replace(_result("checkPair"), summary="known")
    WITHHELD.check(_with(hidden))
    nested = ToolResult(0, "1", sub_trace=_with(replace(USE, calls=(ToolCall("search", {}),))))
    WITHHELD.check(_with(replace(USE, results=(nested,))))


@pytest.mark.parametrize("name", ["get-dose", "fda.search", "dose finder", "поиск", "v2"])
def test_names_with_other_letters_are_found_as_they_stand(name: str) -> None:
    one = Withheld(frozenset({name}), "r", "w")
    for thought in (f"I could call {name} here", f"`{name}`", f"{name}(q=1)", name.upper()):
        with pytest.raises(DataError):
            one.check(_with(replace(USE, thought=thought)))


def test_chat_may_use_ordinary_words() -> None:
    chat = Trace("c", (UserMessage("What is 'search'?"), Step("search(x) is a call.")))
    WITHHELD.check(chat, words=False)
    with pytest.raises(DataError):
        WITHHELD.check(replace(chat, turns=(*chat.turns, UserMessage("And checkPair?"))), words=False)


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (["get_dose", "checkPair", "search"], ["get_dose"]),
        (["get_dose", "CHECKPAIR"], ["get_dose"]),
        ([{"name": "checkPair", "x": 1}, {"name": "get_dose"}], [{"name": "get_dose"}]),
        ([{"type": "function", "function": {"name": "search"}}], []),
        ({"tools": ["checkPair"], "search": 0.5}, {"tools": []}),
        ('["get_dose", "checkPair"]', '["get_dose"]'),
        ("['get_dose', 'search']", "['get_dose']"),
        ("Found: get_dose, search.", "Found: get_dose."),
    ],
)
def test_one_that_is_only_offered_is_not_shown(content: Any, rest: Any) -> None:
    rag = _rag(content, tools_added=(TOOLS[2], GET_DOSE))
    error = _result("No tool get_doze. Known: get_dose, checkPair, search", is_error=True)
    trace = _with(rag, error, initial_tools=(TOOLS[4], *TRACE.initial_tools))
    hidden = WITHHELD.hide(trace)
    WITHHELD.check(hidden)
    assert hidden.initial_tools == TRACE.initial_tools
    assert hidden.steps[0].tools_added == (GET_DOSE,) and hidden.steps[0].results[0].content == rest
    assert hidden.steps[1].results[0].content == "No tool get_doze. Known: get_dose"
    assert hidden.turns[3:] == trace.turns[3:]
    assert WITHHELD.hide(hidden) is hidden


def test_a_tool_that_names_one_is_hidden_where_nobody_calls_it() -> None:
    likes = tool("likes", "Like checkPair, but weaker.", drug_name="string")
    trace = _with(_rag(["likes", "get_dose"], tools_added=(likes, GET_DOSE)), initial_tools=(RAG_TOOL, likes))
    hidden = WITHHELD.hide(trace)
    WITHHELD.check(hidden)
    assert [spec.name for spec in hidden.tools()] == [TOOL_RAG, "get_dose"]
    assert hidden.steps[0].results[0].content == ["get_dose"]
    called = _with(
        Step(calls=(ToolCall("likes", {"drug_name": "a"}),), results=(ToolResult(0, 1),)), initial_tools=(likes,)
    )
    with pytest.raises(DataError, match="shows checkPair in the tool likes"):
        WITHHELD.check(WITHHELD.hide(called))


def test_it_goes_to_other_processes() -> None:
    WITHHELD.hide(_with(initial_tools=TOOLS))
    other = pickle.loads(pickle.dumps(WITHHELD))
    assert other == WITHHELD and other.has("Search") and other.is_named_by(TOOLS[4])
