from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.odd_values import check_every_value
from tests.support.openai_records import TOOLS, user, write_lines
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, StepStatus, ToolCall, ToolResult, Trace
from txagent_train.data.checks import check_complete
from txagent_train.data.decompose import decompose
from txagent_train.data.importers.toolbench import parse
from txagent_train.data.importing import import_traces
from txagent_train.data.loading import load_traces

FUNCTIONS = [item["function"] for item in TOOLS] + [{"name": "Finish", "parameters": {"type": "object"}}]
GIVE = {"return_type": "give_answer", "final_answer": "200 mg."}
GIVE_UP = {"return_type": "give_up_and_restart"}


def called(name: str = "get_dose", arguments: Any = '{"drug": "x"}', **more: Any) -> dict[str, Any]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": written}, **more}


def result(content: Any = "1", name: str | None = "get_dose") -> dict[str, Any]:
    return {"role": "function", "name": name, "content": content}


def text(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def _record(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"id": "row", "messages": list(messages), "functions": FUNCTIONS, "query": "q", **more}


def _parse(*messages: Any, **more: Any) -> Trace:
    return parse(_record(*messages, **more), path=Path("x.jsonl"), line=1)


PREFIX = (user(), called(content="Look."), result())
BROKEN = called(arguments='{"drug": "x', content="Hm.")


def test_a_row_that_ends_in_a_call() -> None:
    trace = _parse(*PREFIX, called("list_drugs", "{}"))
    first, last = trace.steps
    assert first == Step("Look.", calls=(ToolCall("get_dose", {"drug": "x"}),), results=(ToolResult(0, "1"),))
    assert (last, trace.answer) == (Step(calls=(ToolCall("list_drugs", {}),)), None)
    assert [tool.name for tool in trace.initial_tools] == ["get_dose", "list_drugs"]
    assert trace.metadata == {"query": "q"}


def test_finish_gives_the_answer_and_keeps_the_thought() -> None:
    trace = _parse(*PREFIX, called("Finish", GIVE, content="I know."))
    assert (trace.answer, trace.steps[-1]) == ("200 mg.", Step("I know."))
    check_complete(trace)


@pytest.mark.parametrize("content", [None, "I give up."])
def test_giving_up_is_no_answer_and_is_not_trained_on(content: str | None) -> None:
    trace = _parse(*PREFIX, called("Finish", GIVE_UP, content=content))
    last = trace.steps[-1]
    assert (trace.answer, last.thought, last.calls, last.train) == (None, content or "", (), False)
    assert "give_up_and_restart" in str(last.raw_output)
    with pytest.raises(DataError) as caught:
        check_complete(trace)
    assert caught.value.reason == "incomplete"


def test_text_without_finish_is_no_answer() -> None:
    trace = _parse(*PREFIX, text("It seems so."))
    assert (trace.answer, trace.steps[-1].thought) == (None, "It seems so.")
    with pytest.raises(DataError, match="ends without an answer"):
        check_complete(trace)
    assert _parse(*PREFIX, text("It seems so."), called("Finish", GIVE)).steps[1] == Step("It seems so.")


def test_messages_that_are_not_valid_stay_in_the_history(tmp_path: Path) -> None:
    trace = _parse(user(), called(valid=False), result("error"), called(valid=True))
    assert [step.train for step in trace.steps] == [False, True]
    assert trace.metadata == {"query": "q"}
    source = write_lines(tmp_path / "in.jsonl", [_record(user(), called(valid=False), result(), called(), result())])
    import_traces(source, tmp_path / "o.jsonl", format="toolbench", supervise="all", incomplete="steps")
    assert [step.train for trace in load_traces(tmp_path / "o.jsonl") for step in trace.steps] == [False, True]


def test_an_unreadable_call_in_the_history_is_an_unparsable_step() -> None:
    trace = _parse(user(), BROKEN, result("error: bad JSON"), called())
    first, last = trace.steps
    assert (first.status, first.calls, first.thought) == (StepStatus.UNPARSABLE, (), "")
    assert first.raw_output == 'Hm.\n{"name": "get_dose", "arguments": {"drug": "x}'
    assert [(item.call_index, item.content) for item in first.results] == [(None, "error: bad JSON")]
    assert [example.target for example in decompose(trace)] == [last]
    assert len(_parse(user(), BROKEN, called()).steps) == 2  # also where nothing answered it


def test_an_unreadable_call_to_train_on_is_a_fault() -> None:
    for row in ((user(), BROKEN), (*PREFIX, BROKEN), (*PREFIX, BROKEN, result())):
        with pytest.raises(DataError, match="the arguments of the call to get_dose are a text that is not JSON") as bad:
            _parse(*row)
        assert (bad.value.reason, bad.value.step) == ("arguments_not_json", len(row) // 3)


def test_only_the_last_step_of_a_row_is_trained_on(tmp_path: Path) -> None:
    rows = [
        _record(user(), called(), id="r1"),
        _record(*PREFIX, called("list_drugs", "{}"), id="r2"),
        _record(*PREFIX, called("list_drugs", "{}"), result("[]", "list_drugs"), called("Finish", GIVE), id="r3"),
    ]
    source = write_lines(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    report = import_traces(source, out)
    assert (report.format, report.supervise, report.accepted) == ("toolbench", "last", 3)
    for traces in (list(load_traces(out)), list(load_traces(source, "auto"))):
        assert [[e.step_index for e in decompose(trace)] for trace in traces] == [[0], [1], [2]]
    # A row that is one step in the middle of a run is a fault only where all its steps are taken for a whole run.
    assert import_traces(source, out, supervise="all", overwrite=True).dropped == {"incomplete": 1}


def test_calls_in_the_history_may_be_wrong_and_the_last_one_not(tmp_path: Path) -> None:
    wrong = called("no_such", "{}")
    rows = [_record(user(), wrong, result("?", "no_such"), called(), id="a"), _record(user(), wrong, id="b")]
    report = import_traces(write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")
    assert (report.accepted, report.dropped) == (1, {"undeclared_tool": 1})


FAULTS: dict[str, tuple[list[Any], str]] = {
    "empty": ([], "empty_trace"),
    "no step": ([user()], "no_steps"),
    "unknown role": ([user(), {"role": "observer", "content": "x"}, called()], "unknown_role"),
    "message no object": ([user(), 5, called()], "wrong_type"),
    "result first": ([user(), result(), called()], "result_without_call"),
    "result after text": ([user(), text("Hm."), result(), called()], "result_without_call"),
    "two results": ([*PREFIX, result(), called()], "result_without_call"),
    "no result": ([user(), called(), called()], "call_without_result"),
    "result of another tool": ([user(), called(), result(name="list_drugs"), called()], "result_of_other_tool"),
    "torn call at the end": ([*PREFIX, BROKEN], "arguments_not_json"),
    "arguments encoded twice": ([*PREFIX, called(arguments=json.dumps(json.dumps("{}")))], "double_encoded"),
    "arguments a list": ([*PREFIX, called(arguments="[1]")], "arguments_not_object"),
    "no tool name": ([*PREFIX, called(name="")], "call_without_name"),
    "call no object": ([*PREFIX, {"role": "assistant", "function_call": "get_dose"}], "wrong_type"),
    "says nothing": ([*PREFIX, text(None)], "empty_answer"),
    "nothing in mid-row": ([user(), text(None), called()], "empty_step"),
    "Finish torn": ([*PREFIX, called("Finish", '{"return_type": "give_answer", "final_ans')], "arguments_not_json"),
    "Finish without answer": ([*PREFIX, called("Finish", {"return_type": "give_answer"})], "empty_answer"),
    "Finish with a blank answer": ([*PREFIX, called("Finish", {**GIVE, "final_answer": " "})], "empty_answer"),
    "Finish in mid-row": ([user(), called("Finish", GIVE), result(name="Finish"), called()], "reserved_tool_name"),
    "late system": ([user(), {"role": "system", "content": "x"}, called()], "misplaced_system"),
    "blank question": ([user(" "), called()], "empty_user_message"),
    "last one not valid": ([*PREFIX, called(valid=False)], "incomplete"),
}


@pytest.mark.parametrize(("messages", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_have_stable_reasons_and_cost_one_record(tmp_path: Path, messages: list[Any], reason: str) -> None:
    sound = [_record(*PREFIX, called(), id=name) for name in ("a", "b")]
    source = write_lines(tmp_path / "in.jsonl", [sound[0], _record(*messages), sound[1]])
    report = import_traces(source, tmp_path / "out.jsonl")
    assert (report.format, report.read, report.accepted, report.dropped) == ("toolbench", 3, 2, {reason: 1})


def test_no_value_anywhere_crashes_the_parser() -> None:
    whole = _record(*PREFIX, BROKEN, result(), called(valid=False), result(), called("Finish", GIVE))
    check_every_value(lambda item: parse(item, path=Path("x"), line=1), whole)


def test_results_may_be_tool_messages() -> None:
    made = _parse(user(), called(), {**result(), "role": "tool"}, called("Finish", GIVE))
    assert (made.steps[0].results, made.answer) == ((ToolResult(0, "1"),), "200 mg.")
    for role in ("tool", "function"):
        with pytest.raises(DataError, match="follows no call"):
            _parse(user(), {**result(), "role": role}, called())
