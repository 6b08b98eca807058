from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.odd_values import ODD_VALUES, check_every_value
from tests.support.openai_records import TOOLS, write_lines
from txagent_train.core.errors import DataError
from txagent_train.core.records import DataKind, Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.checks import check_calls, check_complete, kind_of
from txagent_train.data.importers.sharegpt import parse
from txagent_train.data.importing import import_traces

CALL = {"name": "get_dose", "arguments": {"drug": "ibuprofen"}}
OTHER = {"name": "list_drugs", "arguments": {}}
PARALLEL = [CALL, OTHER]


def turn(role: str, value: Any) -> dict[str, Any]:
    return {"from": role, "value": value}


def human(value: Any = "How much?") -> dict[str, Any]:
    return turn("human", value)


def gpt(value: Any = "200 mg.") -> dict[str, Any]:
    return turn("gpt", value)


def function_call(value: Any = CALL) -> dict[str, Any]:
    return turn("function_call", value if isinstance(value, str) else json.dumps(value))


def observation(value: Any = '{"dose": 200}') -> dict[str, Any]:
    return turn("observation", value)


def _record(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"conversations": list(turns), "tools": json.dumps(TOOLS), **more}


def _parse(*turns: Any, **more: Any) -> Trace:
    return parse(_record(*turns, **more), path=Path("folder/file.json"), line=3)


WHOLE = (human(), function_call(), observation(), gpt())


def test_a_whole_record() -> None:
    trace = _parse(turn("system", "Be brief."), *WHOLE, dataset="glaive")
    assert trace.turns == (
        UserMessage("How much?"),
        Step(calls=(ToolCall(**CALL),), results=(ToolResult(0, '{"dose": 200}'),)),
        Step(),
    )
    assert (trace.id, trace.system, trace.answer) == ("file-3", "Be brief.", "200 mg.")
    assert [tool.name for tool in trace.initial_tools] == ["get_dose", "list_drugs"]
    assert trace.metadata == {"dataset": "glaive"}


@pytest.mark.parametrize(
    "value",
    [
        CALL,
        [CALL],
        json.dumps(CALL),
        json.dumps([CALL], indent=1),
        json.dumps({**CALL, "arguments": json.dumps(CALL["arguments"])}),
        json.dumps({"name": "get_dose", "parameters": CALL["arguments"]}),
        {"type": "function", "function": CALL},
        json.dumps({"id": "x", "type": "function", "function": {**CALL, "arguments": json.dumps(CALL["arguments"])}}),
    ],
)
def test_calls_in_every_dress_are_the_same(value: Any) -> None:
    assert _parse(human(), turn("function_call", value), observation(), gpt()).turns == _parse(*WHOLE).turns


@pytest.mark.parametrize(
    ("user", "assistant", "call", "result"),
    [
        ("user", "assistant", "function_call", "tool"),
        ("human", "gpt", "tool_call", "tool_response"),
        ("user", "chatgpt", "function-call", "function_response"),
        ("human", "bot", "function_call", "function"),
    ],
)
@pytest.mark.parametrize("spelled", [("from", "value"), ("role", "content")])
@pytest.mark.parametrize("name", ["conversations", "messages"])
def test_roles_and_keys_as_data_sets_spell_them(
    user: str, assistant: str, call: str, result: str, spelled: tuple[str, str], name: str
) -> None:
    texts = [(user, "How much?"), (call, json.dumps(CALL)), (result, '{"dose": 200}'), (assistant, "200 mg.")]
    turns = [dict(zip(spelled, text, strict=True)) for text in texts]
    trace = parse({name: turns, "tools": TOOLS}, path=Path("file.json"), line=3)
    assert trace == _parse(*WHOLE)


def test_openai_turns_under_this_name() -> None:
    wire = {"id": "c", "type": "function", "function": {**CALL, "arguments": json.dumps(CALL["arguments"])}}
    turns = [
        {"role": "user", "content": "How much?"},
        {"role": "assistant", "content": "", "tool_calls": [wire]},
        {"role": "tool", "content": '{"dose": 200}', "tool_call_id": "c"},
        {"role": "assistant", "content": "200 mg."},
    ]
    assert _parse(*turns).turns == _parse(*WHOLE).turns


RESULTS = (ToolResult(0, "1"), ToolResult(1, '{"a": 2}'))


@pytest.mark.parametrize(
    "turns",
    [
        (function_call(PARALLEL), observation("1"), observation('{"a": 2}')),
        (function_call(CALL), function_call(OTHER), observation("1"), observation('{"a": 2}')),
        (function_call(PARALLEL), observation(json.dumps(["1", '{"a": 2}']))),
        (function_call(CALL), function_call(OTHER), observation(["1", '{"a": 2}'])),
        (function_call(PARALLEL), observation(json.dumps([1, '{"a": 2}']))),
    ],
)
def test_parallel_calls_and_their_results(turns: tuple[Any, ...]) -> None:
    step = _parse(human(), *turns, gpt()).steps[0]
    assert (step.calls, step.results) == (tuple(ToolCall(**call) for call in PARALLEL), RESULTS)


def test_a_list_as_the_result_of_one_call_stays_whole() -> None:
    for value in ("[1, 2]", [1, 2]):
        assert _parse(human(), function_call(), observation(value), gpt()).steps[0].results[0].content == "[1, 2]"
    content = _parse(human(), function_call(), observation({"a": None}), gpt()).steps[0].results[0].content
    assert content == {"a": None}


def test_text_before_a_call_is_its_thought() -> None:
    hidden = function_call("<think>\nhm\n</think>" + json.dumps(CALL))
    trace = _parse(human(), gpt("Look."), hidden, observation(), gpt())
    assert len(trace.steps) == 2
    assert (trace.steps[0].thought, trace.steps[0].reasoning) == ("Look.", "hm")


def test_conversations_of_several_questions() -> None:
    more = (human("And now?"), gpt("Wait."), human("Well?"), function_call(), observation(), gpt("Done."))
    trace = _parse(*WHOLE, *more)
    assert [type(item).__name__[0] for item in trace.turns] == list("USSUSUSS")
    assert (trace.answer, trace.steps[1].thought) == ("Done.", "200 mg.")
    check_complete(trace)
    check_calls(trace)


def test_single_hop_records_are_complete() -> None:
    trace = _parse(human(), function_call())
    check_complete(trace)
    assert kind_of(trace) is DataKind.TRACE
    for turns in ((*WHOLE, human(), function_call()), (human(), function_call(), observation())):
        with pytest.raises(DataError) as caught:
            check_complete(_parse(*turns))
        assert caught.value.reason == "incomplete"


@pytest.mark.parametrize("tools", ["[]", [], None, ""])
def test_records_without_tools_and_calls_are_chat(tools: Any) -> None:
    trace = _parse(human("Hi."), gpt("Hello."), tools=tools)
    assert (kind_of(trace), trace.answer, trace.steps) == (DataKind.CHAT, None, (Step(thought="Hello."),))
    check_complete(trace)
    assert kind_of(_parse(human("Hi."), gpt("Hello."))) is DataKind.TRACE


def test_a_system_prompt_beside_the_conversation() -> None:
    assert _parse(*WHOLE, system="Be brief.").system == "Be brief."
    assert _parse(turn("system", "Be brief."), *WHOLE, system="Be brief.").system == "Be brief."
    assert _parse(*WHOLE, system="").system is None


FAULTS: dict[str, tuple[list[Any], str, int | None]] = {
    "empty": ([], "empty_trace", None),
    "no reply": ([human()], "no_steps", None),
    "unknown role": ([human(), turn("narrator", "x"), gpt()], "unknown_role", None),
    "no role": ([human(), {"value": "x"}], "unknown_role", None),
    "turn no object": ([human(), "x"], "wrong_type", None),
    "late system": ([human(), turn("system", "x"), gpt()], "misplaced_system", None),
    "blank question": ([human(" "), gpt()], "empty_user_message", None),
    "no question": ([human(None), gpt()], "empty_user_message", None),
    "blank answer": ([human(), gpt("")], "empty_answer", 0),
    "null answer": ([human(), function_call(), observation(), gpt(None)], "empty_answer", 1),
    "call torn": ([human(), function_call('{"name": "get_dose", "argu'), observation(), gpt()], "call_not_json", None),
    "call NaN": ([human(), function_call('{"name": "f", "arguments": {"x": NaN}}')], "call_not_json", None),
    "call key twice": ([human(), function_call('{"name": "f", "name": "g", "arguments": {}}')], "call_not_json", None),
    "call encoded twice": ([human(), function_call(json.dumps(json.dumps(CALL)))], "double_encoded", None),
    "arguments encoded twice": (
        [human(), function_call({"name": "f", "arguments": json.dumps(json.dumps({}))})],
        "double_encoded",
        0,
    ),
    "arguments torn": ([human(), function_call({"name": "f", "arguments": "{"})], "arguments_not_json", 0),
    "arguments a list": ([human(), function_call({"name": "f", "arguments": [1]})], "arguments_not_object", 0),
    "no name": ([human(), function_call({"arguments": {}})], "call_without_name", 0),
    "no call": ([human(), function_call([])], "call_without_name", None),
    "a number as a call": ([human(), function_call("5")], "wrong_type", 0),
    "result first": ([human(), observation(), gpt()], "result_without_call", None),
    "result after text": ([human(), gpt(), observation(), gpt()], "result_without_call", 0),
    "one result too many": ([human(), function_call(), observation(), observation(), gpt()], "result_without_call", 0),
    "one result too few": (
        [human(), function_call([CALL, OTHER, OTHER]), observation("1"), observation("2"), gpt()],
        "call_without_result",
        0,
    ),
    "one text for two calls": ([human(), function_call(PARALLEL), observation("1"), gpt()], "results_not_split", 0),
    "too short a list": ([human(), function_call(PARALLEL), observation("[1]"), gpt()], "results_not_split", 0),
    "no result": ([human(), function_call(), human("?"), gpt()], "call_without_result", 0),
    "calls in text": ([human(), gpt('<tool_call>{"name": "f"}</tool_call>')], "calls_in_text", 0),
}


@pytest.mark.parametrize(("turns", "reason", "step"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_have_stable_reasons_and_cost_one_record(
    tmp_path: Path, turns: list[Any], reason: str, step: int | None
) -> None:
    with pytest.raises(DataError) as caught:
        _parse(*turns, id="bad")
    assert (caught.value.reason, caught.value.trace_id) == (reason, "bad")
    if step is not None:
        assert caught.value.step == step
    source = write_lines(tmp_path / "in.jsonl", [_record(*WHOLE), _record(*turns, id="bad"), _record(*WHOLE)])
    report = import_traces(source, tmp_path / "out.jsonl")
    assert (report.format, report.read, report.accepted, report.dropped) == ("sharegpt", 3, 2, {reason: 1})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tools": "["}, "tools_not_json"),
        ({"tools": json.dumps(json.dumps(TOOLS))}, "double_encoded"),
        ({"tools": {"a": 1}}, "wrong_type"),
        ({"tools": [1]}, "invalid_tool_spec"),
        ({"system": "x", "conversations": [turn("system", "y"), *WHOLE]}, "two_systems"),
        ({"conversations": {}}, "wrong_type"),
        ({"id": [1]}, "wrong_type"),
    ],
)
def test_faults_beside_the_conversation(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        parse({**_record(*WHOLE), **more}, path=Path("x"), line=1)
    assert caught.value.reason == reason
    with pytest.raises(DataError, match="no conversations"):
        parse({"tools": "[]"}, path=Path("x"), line=1)


def test_no_value_anywhere_crashes_the_parser() -> None:
    whole = _record(human(), function_call(PARALLEL), observation(["1", "2"]), gpt(), system="s", id="i")
    check_every_value(lambda item: parse(item, path=Path("x"), line=1), whole, (*ODD_VALUES, "null", "[]"))


@pytest.mark.parametrize("first", [True, False])
def test_calls_in_two_places_are_a_fault(first: bool) -> None:
    turns = [{**gpt("Look."), "tool_calls": 5}, function_call()] if first else [{**function_call(), "tool_calls": 5}]
    with pytest.raises(DataError) as caught:
        _parse(human(), *turns, observation(), gpt())
    assert caught.value.reason == "two_call_forms"


def test_a_think_tag_in_arguments_is_data() -> None:
    value = json.dumps({"name": "get_dose", "arguments": {"drug": "a</think>b"}})
    (step, _) = _parse(human(), function_call(value), observation(), gpt()).steps
    assert (step.reasoning, step.calls[0].arguments) == ("", {"drug": "a</think>b"})


def test_no_thought_of_a_call_is_lost_beside_another() -> None:
    turn_of = function_call("<think>hm</think>" + json.dumps(CALL))
    (step, _) = _parse(human(), {**turn_of, "reasoning": "hm"}, observation(), gpt()).steps
    assert step.reasoning == "hm"
    with pytest.raises(DataError, match="differ"):
        _parse(human(), {**turn_of, "reasoning": "other"}, observation(), gpt())
