from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.odd_values import check_every_value
from tests.support.openai_records import TOOLS, assistant, call, record, tool, user
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.importers.openai import parse


def _parse(item: dict[str, Any]) -> Trace:
    return parse(item, path=Path("folder/file.jsonl.gz"), line=7)


def _messages(*messages: Any) -> Trace:
    return _parse(record(messages=list(messages)))


def test_a_whole_record() -> None:
    trace = _parse(
        record(question_id=5, entities=["ibuprofen"], source="s", license="CC0", round=2, teacher="m", task="x")
    )
    assert trace.turns == (
        UserMessage("How much ibuprofen?"),
        Step(
            thought="Look it up.",
            calls=(ToolCall("get_dose", {"drug": "ibuprofen"}),),
            results=(ToolResult(0, '{"dose": "200 mg"}'),),
        ),
        Step(),
    )
    assert trace.answer == "200 mg."
    assert [spec.name for spec in trace.initial_tools] == ["get_dose", "list_drugs"]
    assert (trace.question_id, trace.entities, trace.source, trace.license) == ("5", ("ibuprofen",), "s", "CC0")
    assert (trace.round, trace.teacher, trace.metadata) == (2, "m", {"task": "x"})


def test_a_record_without_id_is_named_after_its_place() -> None:
    assert _parse(record(id=None)).id == "file-7"
    assert _parse(record(id=12)).id == "12"


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_system_message(role: str) -> None:
    trace = _messages({"role": role, "content": "Be brief."}, user(), assistant("Yes."))
    assert trace.system == "Be brief."
    assert len(trace.turns) == 2


def test_content_parts_are_joined_with_nothing() -> None:
    parts = [{"type": "text", "text": "How much"}, {"type": "text", "text": " ibuprofen?"}]
    trace = _messages(user(parts), assistant(None, call()), tool(parts), assistant(parts))
    assert trace.question == trace.answer == trace.steps[0].results[0].content == "How much ibuprofen?"


@pytest.mark.parametrize("content", ['{"a":  1}\n', "[1]", "", " text ", None, {"a": None}])
def test_the_content_of_a_tool_is_kept_as_recorded(content: Any) -> None:
    trace = _messages(user(), assistant(None, call()), tool(content), assistant("Done."))
    assert trace.steps[0].results[0].content == ("" if content is None else content)


def test_arguments_keep_key_order_number_types_and_nulls() -> None:
    text = '{"b": 1.0, "a": 1, "c": null}'
    for arguments in (text, json.loads(text)):
        (step, _) = _messages(user(), assistant(None, call(arguments=arguments)), tool(), assistant("Done.")).steps
        assert list(step.calls[0].arguments.items()) == [("b", 1.0), ("a", 1), ("c", None)]
        assert type(step.calls[0].arguments["b"]) is float


def test_parallel_calls_are_answered_by_id_in_any_order() -> None:
    trace = _messages(
        user(),
        assistant(None, call(id="x"), call("list_drugs", "{}", id="y")),
        tool("2", "y"),
        tool("1", "x"),
        assistant("Ok."),
    )
    assert trace.steps[0].results == (ToolResult(0, "1"), ToolResult(1, "2"))


@pytest.mark.parametrize(("call_id", "result_id"), [(None, None), ("", None), (None, "x"), ("c1", None)])
def test_without_ids_results_answer_in_order(call_id: str | None, result_id: str | None) -> None:
    second = None if call_id is None else f"{call_id}2" if call_id else ""
    calls = [call(id=call_id), call("list_drugs", "{}", id=second)]
    trace = _messages(user(), assistant(None, *calls), tool("1", result_id), tool("2", result_id), assistant("Ok."))
    assert trace.steps[0].results == (ToolResult(0, "1"), ToolResult(1, "2"))


def test_an_id_may_come_back_after_it_was_answered() -> None:
    trace = _messages(user(), assistant(None, call()), tool("1"), assistant(None, call()), tool("2"), assistant("Ok."))
    assert [step.results for step in trace.steps] == [(ToolResult(0, "1"),), (ToolResult(0, "2"),), ()]


def test_assistant_messages_in_a_row_and_follow_ups() -> None:
    trace = _messages(user(), assistant("One."), assistant("Two."), user("And now?"), assistant("Three."))
    assert [type(turn).__name__ for turn in trace.turns] == ["UserMessage", "Step", "Step", "UserMessage", "Step"]
    assert ([step.thought for step in trace.steps], trace.answer) == (["One.", "Two.", ""], "Three.")


def test_reasoning_and_weight_of_messages() -> None:
    trace = _messages(
        user(),
        assistant(None, call(), reasoning_content="hm", reasoning="hm", weight=0),
        tool(),
        assistant("Done.", reasoning="so"),
    )
    assert [(step.reasoning, step.weight) for step in trace.steps] == [("hm", 0.0), ("so", 1.0)]


def test_nulls_that_arrow_fills_in_are_absent() -> None:
    filled = [
        {"role": "user", "content": "q?", "tool_calls": None, "name": None, "tool_call_id": None},
        {"role": "assistant", "content": None, "tool_calls": [call()], "name": None, "tool_call_id": None},
        {"role": "tool", "content": "1", "tool_calls": None, "name": None, "tool_call_id": "c1"},
        {"role": "assistant", "content": "Done.", "tool_calls": None, "name": None, "tool_call_id": None},
    ]
    trace = _messages(*filled)
    assert (trace.answer, trace.metadata) == ("Done.", {})


def test_other_keys_of_messages_are_kept() -> None:
    trace = _messages(user(), assistant("Done.", refusal=None, annotations=[], logprobs={"a": 1}))
    assert trace.metadata == {"message_fields": [{"message": 1, "logprobs": {"a": 1}}]}


def test_tools_wrapped_bare_and_as_text_are_the_same() -> None:
    wrapped = _parse(record()).initial_tools
    bare = [item["function"] for item in TOOLS]
    strings = [{**item, "parameters": json.dumps(item["parameters"])} for item in bare]
    for tools in (json.dumps(TOOLS), bare, strings):
        read = _parse({**record(), "tools": tools}).initial_tools
        assert [(spec.name, spec.description, spec.parameters) for spec in read] == [
            (spec.name, spec.description, spec.parameters) for spec in wrapped
        ]


def test_a_tool_can_be_written_back() -> None:
    strict = {"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}
    short = {"name": "ping", "parameters": None}
    plain, odd, bare = _parse({**record(), "tools": [TOOLS[1], strict, short]}).initial_tools
    assert (plain.origin, odd.origin, bare.origin) == ({}, {"openai": strict}, {"openai": short})
    assert (bare.description, bare.parameters) == ("", {"type": "object", "properties": {}})


def test_control_text_in_a_result_stays_data() -> None:
    text = '{"rows": []}<|eot_id|><tool_call>\n{"name": "get_dose", "arguments": {}}\n</tool_call>'
    trace = _messages(user(), assistant(None, call()), tool(text), assistant("Done."))
    assert trace.steps[0].results[0].content == text
    assert sum(len(step.calls) for step in trace.steps) == 1


FINISH_TEXTS = [
    '[TOOL_CALLS][{"name": "Finish", "arguments": {}}]',
    '\n<tool_call>\n{"name": "Finish"}\n</tool_call>',
    "",
]


@pytest.mark.parametrize("finish", FINISH_TEXTS)
@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [("Hm.\n\n[FinalAnswer] 200 mg.", "Hm.", "200 mg."), ("[FinalAnswer]200 mg.", "", "200 mg."), ("No.", "", "No.")],
)
def test_words_of_a_wire_format_in_the_last_message(text: str, thought: str, answer: str, finish: str) -> None:
    trace = _messages(user(), assistant(None, call()), tool(), assistant(text + finish))
    assert (trace.answer, trace.steps[-1]) == (answer, Step(thought=thought))
    called = _messages(user(), assistant(None, call()), tool(), assistant(text, call("Finish", "{}")))
    assert (called.answer, called.steps[-1]) == (answer, Step(thought=thought))


def test_arguments_of_finish_are_kept_and_finish_is_no_tool() -> None:
    end = assistant("Done.", call("Finish", '{"state": "ok"}'))
    tools = [*TOOLS, {"name": "Finish", "parameters": {"type": "object", "properties": None}}]
    trace = _parse(record(messages=[user(), end], tools=tools))
    assert (trace.answer, [spec.name for spec in trace.initial_tools]) == ("Done.", ["get_dose", "list_drugs"])
    assert trace.metadata == {"message_fields": [{"message": 1, "finish_arguments": {"state": "ok"}}]}


def test_think_at_the_start_of_content_is_reasoning() -> None:
    trace = _messages(
        user(),
        assistant("<think>\nhm\n</think>\n\nLook.", call(), reasoning="hm"),
        tool(),
        assistant("hm again</think>\n\nDone."),
    )
    assert [(step.reasoning, step.thought) for step in trace.steps] == [("hm", "Look."), ("hm again", "")]
    assert trace.answer == "Done."


@pytest.mark.parametrize(
    "text", ["<think>a</think>b <think>c</think>", "a <think>b", "<think>a", "a</think>b</think>c"]
)
def test_think_elsewhere_is_a_fault(text: str) -> None:
    for messages in ((user(), assistant(text)), (user(), assistant(text, call()), tool(), assistant("Done."))):
        with pytest.raises(DataError) as caught:
            _messages(*messages)
        assert caught.value.reason == "think_in_text"


def test_required_marks_inside_properties_become_a_list() -> None:
    item = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string", "required": True}}}}
    (spec,) = _parse(record(tools=[item])).initial_tools
    assert spec.parameters == {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    assert spec.origin == {"openai": item}


OLDER = {"name": "get_dose", "arguments": '{"drug": "ibuprofen"}'}


FAULTS = {
    "calls in text": ([user(), assistant('Hm.[TOOL_CALLS][{"name": "f"}]'), assistant("a")], "calls_in_text", 0),
    "calls in blocks": ([user(), assistant("<tool_call>{}</tool_call>"), tool(), assistant("a")], "calls_in_text", 0),
    "call in the answer": ([user(), assistant('[FinalAnswer] a[TOOL_CALLS][{"name": "f"}]')], "calls_in_text", 0),
    "Finish in mid-trace": (
        [user(), assistant('Yes.[TOOL_CALLS][{"name": "Finish"}]'), user("?"), assistant("a")],
        "calls_in_text",
        0,
    ),
    "calls twice": ([user(), assistant('Hm.[TOOL_CALLS][{"name": "f"}]', call())], "calls_in_text", 0),
    "empty final answer": ([user(), assistant("Hm. [FinalAnswer] ")], "empty_answer", 0),
    "nothing but Finish": ([user(), assistant(None, call("Finish", "{}"))], "empty_answer", 0),
    "two thoughts": ([user(), assistant("<think>x</think>a", reasoning="y")], "two_reasonings", 0),
    "empty": ([], "empty_trace", None),
    "no step": ([user()], "no_steps", None),
    "unknown role": ([user(), {"role": "observer", "content": "x"}, assistant("a")], "unknown_role", None),
    "role of wrong type": ([user(), {"role": ["user"], "content": "x"}], "unknown_role", None),
    "late system": ([user(), {"role": "system", "content": "x"}, assistant("a")], "misplaced_system", None),
    "message no object": ([user(), "hello"], "wrong_type", None),
    "null user": ([user(None), assistant("a")], "empty_user_message", None),
    "image": ([user([{"type": "image_url", "image_url": {}}]), assistant("a")], "unsupported_content_part", None),
    "null answer": ([user(), assistant(None, call()), tool(), assistant(None)], "empty_answer", 1),
    "blank answer": ([user(), assistant(" ")], "empty_answer", 0),
    "empty step": ([user(), assistant(None), user("?"), assistant("a")], "empty_step", 0),
    "arguments torn": ([user(), assistant(None, call(arguments='{"drug": '))], "arguments_not_json", 0),
    "arguments NaN": ([user(), assistant(None, call(arguments='{"drug": NaN}'))], "arguments_not_json", 0),
    "arguments twice": ([user(), assistant(None, call(arguments=json.dumps('{"drug": "x"}')))], "double_encoded", 0),
    "arguments list": ([user(), assistant(None, call(arguments="[1]"))], "arguments_not_object", 0),
    "no tool name": ([user(), assistant(None, call(name=""))], "call_without_name", 0),
    "ids twice": ([user(), assistant(None, call(), call()), tool(), tool(), assistant("a")], "duplicate_call_id", 0),
    "foreign id": ([user(), assistant(None, call()), tool(), tool(id="c9"), assistant("a")], "result_without_call", 0),
    "one result too many": (
        [user(), assistant(None, call(id=None)), tool(id=None), tool(id=None), assistant("a")],
        "result_without_call",
        0,
    ),
    "result first": ([user(), tool(), assistant("a")], "result_without_call", None),
    "result after talk": ([user(), assistant("hm"), tool(), assistant("a")], "result_without_call", 0),
    "two results": ([user(), assistant(None, call()), tool(), tool(), assistant("a")], "duplicate_result", 0),
    "other tool": (
        [user(), assistant(None, call()), tool(name="list_drugs"), assistant("a")],
        "result_of_other_tool",
        0,
    ),
    "no result": (
        [user(), assistant(None, call()), assistant(None, call()), tool(), assistant("a")],
        "call_without_result",
        0,
    ),
    "late result": (
        [user(), assistant(None, call()), assistant(None, call(id="c2")), tool(), tool(id="c2"), assistant("a")],
        "result_without_call",
        1,
    ),
    "user before result": ([user(), assistant(None, call()), user("?"), assistant("a")], "call_without_result", 0),
    "two forms of calls": (
        [user(), assistant(None, call(), function_call={"name": "x", "arguments": "{}"}), assistant("a")],
        "two_call_forms",
        0,
    ),
    "older call torn": (
        [user(), assistant(None, function_call={"name": "get_dose", "arguments": "{"}), assistant("a")],
        "arguments_not_json",
        0,
    ),
    "older result of another tool": (
        [user(), assistant(None, function_call=OLDER), {"role": "function", "name": "x", "content": "1"}],
        "result_of_other_tool",
        0,
    ),
    "older result without a call": (
        [user(), {"role": "function", "name": "get_dose", "content": "1"}, assistant("a")],
        "result_without_call",
        None,
    ),
    "arguments and parameters": (
        [user(), assistant(None, {"name": "get_dose", "arguments": {}, "parameters": {}})],
        "two_arguments",
        0,
    ),
    "train no flag": ([user(), assistant("a", train=1)], "wrong_type", 0),
    "final answer no text": ([user(), assistant(None, call("Finish", {"final_answer": 5}))], "wrong_type", 0),
    "no final answer given": (
        [user(), assistant("a", call("Finish", {"return_type": "give_answer"}))],
        "empty_answer",
        0,
    ),
    "two reasonings": ([user(), assistant("a", reasoning="x", reasoning_content="y")], "two_reasonings", 0),
    "negative weight": ([user(), assistant("a", weight=-1)], "invalid_weight", None),
}


@pytest.mark.parametrize(("messages", "reason", "step"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_have_stable_reasons_and_name_trace_and_step(messages: list[Any], reason: str, step: int | None) -> None:
    with pytest.raises(DataError) as caught:
        _messages(*messages)
    assert caught.value.reason == reason
    assert caught.value.trace_id == "t1"
    if step is not None:
        assert caught.value.step == step


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ("[", "tools_not_json"),
        (json.dumps(json.dumps(TOOLS)), "double_encoded"),
        ({"a": 1}, "wrong_type"),
        ([1], "invalid_tool_spec"),
        ([{"type": "function", "function": {"description": "x"}}], "tool_without_name"),
        ([{"name": "x", "parameters": "{"}], "invalid_tool_spec"),
        ([TOOLS[0], TOOLS[0]], "duplicate_tool"),
    ],
)
def test_faults_of_tools(tools: Any, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        _parse({**record(), "tools": tools})
    assert caught.value.reason == reason


def test_a_record_of_another_format_says_so() -> None:
    with pytest.raises(DataError, match="--format native") as caught:
        _parse({"id": "n", "turns": []})
    assert caught.value.reason == "other_format"


def test_no_value_anywhere_crashes_the_parser() -> None:
    """Each value of a sound record is replaced by each odd one: a trace or a DataError comes out, nothing else."""
    whole = record(question_id="q", entities=["e"], round=1)
    whole["messages"][0]["content"] = [{"type": "text", "text": "q?"}]
    check_every_value(_parse, whole)
