from __future__ import annotations

import pytest

from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.ablation import check_steps, reasoning_steps, tools_left_out, without_thoughts

USE = Step("I look.", reasoning="Hm.", calls=(ToolCall("f", {}),), results=(ToolResult(0, 1),))
SAID = Step("Which one?", reasoning="Hm.")
TRACE = Trace("t", (UserMessage("?"), USE, SAID, UserMessage("That."), USE, Step("I have it.")), answer="A.")


def test_steps_of_reasoning_are_those_before_the_answer() -> None:
    assert reasoning_steps(TRACE) == 3
    check_steps(TRACE, 3)
    check_steps(TRACE, None)
    with pytest.raises(DataError, match=r"trace t: the trace has 3 steps before its answer, over .*max_steps \(1\)"):
        check_steps(TRACE, 1)
    single = Trace("s", (UserMessage("?"), Step(calls=(ToolCall("f", {}),))))
    assert reasoning_steps(single) == 1


def test_thoughts_go_and_what_is_said_to_the_user_stays() -> None:
    silent = without_thoughts(TRACE)
    assert [step.thought for step in silent.steps] == ["", "Which one?", "", ""]
    assert not any(step.reasoning for step in silent.steps)
    assert silent.answer == "A." and [step.calls for step in silent.steps] == [step.calls for step in TRACE.steps]


def test_a_share_of_the_tools() -> None:
    names = [f"f{number}" for number in range(211)] + ["Tool_RAG"]
    tenth, half = (set(names) - tools_left_out(names, share, seed=1) for share in (0.1, 0.5))
    assert (len(tenth), len(half)) == (23, 107) and tenth < half and "Tool_RAG" in tenth
    assert tools_left_out(names, 0.1, seed=2) != tools_left_out(names, 0.1, seed=1)
    assert tools_left_out(names, 1.0, seed=1) == frozenset()
    assert len(tools_left_out(["a", "b"], 0.01, seed=0)) == 1
