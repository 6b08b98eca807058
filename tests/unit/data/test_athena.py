from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, StepStatus, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.checks import check_calls, check_complete
from txagent_train.data.importers.athena import parse

DOSE = {
    "name": "get_dose",
    "description": "The usual dose of a drug.",
    "parameters": {"type": "object", "properties": {"drug": {"type": "string"}}, "required": ["drug"]},
}
PAIR = {
    "name": "check_pair",
    "description": "Whether two drugs interact.",
    "parameters": {"type": "object", "properties": {"drugs": {"type": "array", "items": {"type": "string"}}}},
}
TOOLS = [{"type": "function", "function": spec} for spec in (DOSE, PAIR)]
QWEN = (
    "{head}# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{specs}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
    'XML tags:\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)
HERMES = (
    "{head}You are provided with function signatures within <tools> </tools> XML tags. You may call one or more "
    "functions to assist with the user query. Don't make assumptions about what values to plug into functions. Here "
    "are the available tools: <tools> {specs} </tools> Use the following pydantic model json schema for each tool "
    'call you will make: {{"properties": {{"name": {{"type": "string"}}}}, "title": "FunctionCall"}} For each function '
    "call return a json object with function name and arguments within <tool_call></tool_call> XML tags as follows:\n"
    '<tool_call>\n{{"arguments": <args-dict>, "name": <function-name>}}\n</tool_call>'
)


def _block(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _messages(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def _parse(messages: Any, **more: Any) -> Trace:
    return parse({"id": "a1", "messages": messages, "tools": TOOLS, **more}, path=Path("a.jsonl"), line=4)


FINISH = _block("Finish")
USER = ("user", "How much ibuprofen, and is it fine with warfarin?")
PARALLEL = (
    f"Two lookups.\n{_block('get_dose', drug='ibuprofen')}\n{_block('check_pair', drugs=['ibuprofen', 'warfarin'])}"
)
END = ("assistant", f"Both are known.\n\n[FinalAnswer] 200 mg; not with warfarin.\n{FINISH}")
STEP = Step(
    "Two lookups.",
    calls=(ToolCall("get_dose", {"drug": "ibuprofen"}), ToolCall("check_pair", {"drugs": ["ibuprofen", "warfarin"]})),
    results=(ToolResult(0, '{"dose": "200 mg"}'), ToolResult(1, "bleeding")),
)
RESULTS = (("tool", '{"dose": "200 mg"}'), ("tool", "bleeding"))
BLOCKS = '<tool_response>\n{"dose": "200 mg"}\n</tool_response>\n<tool_response>\nbleeding\n</tool_response>'


@pytest.mark.parametrize("results", [RESULTS, (("tool", BLOCKS),), (("user", BLOCKS),)])
def test_results_as_messages_and_as_blocks(results: tuple[tuple[str, str], ...]) -> None:
    trace = _parse(_messages(("system", "Be exact."), USER, ("assistant", PARALLEL), *results, END))
    assert trace.turns == (UserMessage(USER[1]), STEP, Step("Both are known."))
    assert (trace.answer, trace.system) == ("200 mg; not with warfarin.", "Be exact.")
    assert [tool.name for tool in trace.initial_tools] == ["get_dose", "check_pair"]
    check_calls(trace)
    check_complete(trace)


def test_from_and_value_and_messages_as_text() -> None:
    turns = [("human", USER[1]), ("gpt", PARALLEL), *RESULTS, ("gpt", END[1])]
    messages = [{"from": role, "value": value} for role, value in turns]
    record = {"id": "a1", "conversations": messages, "tools": json.dumps(TOOLS), "category": "dose"}
    for conversations in (messages, json.dumps(messages)):
        trace = parse({**record, "conversations": conversations}, path=Path("a.jsonl"), line=4)
        assert trace.turns[1] == STEP
        assert (trace.answer, trace.metadata) == ("200 mg; not with warfarin.", {"category": "dose"})


@pytest.mark.parametrize("wording", [QWEN, HERMES])
@pytest.mark.parametrize("head", ["", "You are careful. "])
@pytest.mark.parametrize("listed", ["\n".join(map(json.dumps, TOOLS)), json.dumps(TOOLS), repr(TOOLS)])
def test_tools_in_the_system_prompt(wording: str, head: str, listed: str) -> None:
    system = wording.format(head=head, specs=listed) + "\nAnswer briefly."
    trace = _parse(_messages(("system", system), USER, ("assistant", "Fine.")), tools=None)
    assert [(tool.name, tool.parameters) for tool in trace.initial_tools] == [
        (spec["name"], spec["parameters"]) for spec in (DOSE, PAIR)
    ]
    assert trace.system == ("You are careful.\n\n" if head else "") + "Answer briefly."


def test_a_block_of_tools_in_other_words_is_cut_out_alone() -> None:
    system = f"Your tools: <tools>{json.dumps(DOSE)}</tools> Use them."
    trace = _parse(_messages(("system", system), USER, ("assistant", "Fine.")), tools="")
    assert ([tool.name for tool in trace.initial_tools], trace.system) == (["get_dose"], "Your tools:\n\nUse them.")


def test_thinking_is_kept_apart_and_may_hold_the_words_of_calls() -> None:
    text = f"<think>\nA <tool_call> for the dose.\n</think>\n\n{_block('get_dose', drug='x')}"
    trace = _parse(_messages(USER, ("assistant", text), ("tool", "1"), END))
    assert trace.steps[0].reasoning == "A <tool_call> for the dose."
    assert (trace.steps[0].thought, trace.steps[0].calls) == ("", (ToolCall("get_dose", {"drug": "x"}),))


@pytest.mark.parametrize(
    "block",
    [
        '<tool_call>{"name": "get_dose", "arguments": {"drug": "</tool_call>", "n": 1.0}}</tool_call>',
        '<tool_call>\n{"name": "get_dose", "parameters": {"drug": "</tool_call>", "n": 1.0}}',
        '<tool_call>[{"name": "get_dose", "arguments": "{\\"drug\\": \\"</tool_call>\\", \\"n\\": 1.0}"}]</tool_call>',
    ],
)
def test_spellings_of_a_block(block: str) -> None:
    trace = _parse(_messages(USER, ("assistant", f"Look.\n{block}"), ("tool", "1"), END))
    (call,) = trace.steps[0].calls
    assert list(call.arguments.items()) == [("drug", "</tool_call>"), ("n", 1.0)]
    assert type(call.arguments["n"]) is float


def test_a_block_as_python_prints_it_and_several_calls_in_a_block() -> None:
    python = "<tool_call>\n{'name': 'get_dose', 'arguments': {'drug': \"x's\", 'new': True, 'of': None}}\n</tool_call>"
    several = '<tool_call>\n{"name": "get_dose", "arguments": {}}\n{"name": "check_pair"}\n</tool_call>'
    steps = _parse(_messages(USER, ("assistant", python), ("tool", "1"), ("assistant", several), *RESULTS, END)).steps
    assert steps[0].calls == (ToolCall("get_dose", {"drug": "x's", "new": True, "of": None}),)
    assert steps[1].calls == (ToolCall("get_dose", {}), ToolCall("check_pair", {}))


def test_text_behind_the_calls_is_kept_as_raw_output() -> None:
    text = f"Look.\n{_block('get_dose', drug='x')}\nThat will tell."
    step = _parse(_messages(USER, ("assistant", text), ("tool", "1"), END)).steps[0]
    assert (step.thought, step.raw_output, step.status) == ("Look.", text, StepStatus.OK)


BROKEN = 'Hm.\n<tool_call>\n{"name": "get_dose", "arguments": {"drug": \n</tool_call>'


@pytest.mark.parametrize("text", [BROKEN, "Hm.\n<tool_call>\n[1]\n</tool_call>", "Let me see."])
def test_a_block_of_the_history_that_cannot_be_read(text: str) -> None:
    trace = _parse(_messages(USER, ("assistant", text), ("tool", "not a call"), ("assistant", PARALLEL), *RESULTS, END))
    assert trace.steps[0] == Step(
        raw_output=text, status=StepStatus.UNPARSABLE, results=(ToolResult(None, "not a call", is_error=True),)
    )
    assert trace.steps[1] == STEP
    alone = _parse(_messages(USER, ("assistant", BROKEN), ("assistant", PARALLEL), *RESULTS, END)).steps[0]
    assert (alone.raw_output, alone.results) == (BROKEN, ())


def test_a_last_block_that_cannot_be_read_is_a_fault_that_names_the_step() -> None:
    with pytest.raises(DataError, match="a call of the last message cannot be read") as caught:
        _parse(_messages(USER, ("assistant", PARALLEL), *RESULTS, ("assistant", BROKEN)))
    assert (caught.value.reason, caught.value.step, caught.value.trace_id) == ("calls_not_json", 1, "a1")


def test_a_single_hop_and_a_conversation_that_goes_on() -> None:
    assert _parse(_messages(USER, ("assistant", _block("get_dose", drug="x")))).is_complete
    first = ("assistant", f"I see.\n[FinalAnswer] 200 mg.\n{FINISH}")
    trace = _parse(_messages(USER, first, ("user", "And for a child?"), END))
    assert trace.steps[0] == Step("I see.\n\n200 mg.")
    follow_up = _parse(_messages(USER, ("assistant", PARALLEL), ("user", f"{BLOCKS}\nAnd for a child?"), END))
    assert follow_up.turns[1:3] == (STEP, UserMessage("And for a child?"))


def test_plain_chat_has_no_answer() -> None:
    trace = _parse(_messages(USER, ("assistant", "200 mg.")), tools=None)
    assert (trace.answer, trace.steps) == (None, (Step("200 mg."),))


FAULTS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "one result too many": ([USER, ("assistant", PARALLEL), *RESULTS, RESULTS[0], END], "result_without_call"),
    "no result": ([USER, ("assistant", PARALLEL), END], "call_without_result"),
    "text beside results": ([USER, ("assistant", PARALLEL), ("tool", BLOCKS + "so"), END], "text_beside_results"),
    "tools torn": ([("system", '<tools>\n{"name": \n</tools>'), USER, END], "tools_not_json"),
    "unknown role": ([USER, ("critic", "No."), END], "unknown_role"),
    "empty answer": ([USER, ("assistant", f"[FinalAnswer]\n{FINISH}")], "empty_answer"),
    "result first": ([("tool", "1"), USER, END], "result_without_call"),
}


@pytest.mark.parametrize(("turns", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_faults(turns: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(DataError) as caught:
        _parse(_messages(*turns), tools=None)
    assert (caught.value.reason, caught.value.trace_id) == (reason, "a1")


def test_odd_values_are_faults_and_never_crash() -> None:
    values: list[Any] = [None, 5, True, [], {}, [1], [None], "x", "[1]"]
    for odd in (*values, [{"from": 1}], [{"role": "assistant", "content": 5}]):
        for record in ({"messages": odd}, {"conversations": odd}, {"messages": _messages(USER, END), "tools": odd}):
            try:
                parse({"id": "a1", **record}, path=Path("a.jsonl"), line=1)
            except DataError as error:
                assert error.reason != "invalid_record"


def test_keys_of_tool_messages_may_have_any_name() -> None:
    messages = _messages(USER, ("model", _block("get_dose", drug="x")), ("tool_response", "1"), ("model", "Done."))
    messages[2] |= {"call_id": "z", "position": "2", "sub_trace": "3"}
    made = _parse(messages)
    assert (made.steps[0].results, made.answer) == ((ToolResult(0, "1"),), "Done.")
    assert made.metadata["message_fields"] == [{"message": 2, "call_id": "z", "position": "2", "sub_trace": "3"}]


def test_an_unparsable_output_keeps_what_stands_beside_it() -> None:
    messages: list[dict[str, Any]] = _messages(USER, ("assistant", "<tool_call>\n{"), ("tool", "error"), END)
    messages[1] |= {"reasoning_content": "hm", "weight": 0.5, "tokens": 3}
    made = _parse(messages)
    step = made.steps[0]
    assert (step.status, step.reasoning, step.weight) == (StepStatus.UNPARSABLE, "hm", 0.5)
    assert made.metadata["message_fields"][0] == {"message": 1, "tokens": 3}
