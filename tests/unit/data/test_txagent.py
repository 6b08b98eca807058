from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.checks import check_calls, check_complete
from txagent_train.data.importers.txagent import FORCED_BEGINNING, parse

FINISH = {"name": "Finish", "description": "The end.", "parameter": {"type": "object", "properties": None}}
RAG = {
    "name": "Tool_RAG",
    "description": "Look for tools.",
    "parameter": {
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "What is needed.", "required": True},
            "limit": {"type": "integer", "description": "How many.", "required": True},
        },
    },
    "required": ["description", "limit"],
}
DOSE = {
    "name": "dose_of_drug",
    "description": "The dose.",
    "label": ["Drug"],
    "parameter": {"type": "object", "properties": {"drug": {"type": "string", "required": True}, "limit": {
        "type": "integer", "required": False}}},
}  # fmt: skip
PAIR = {
    "name": "interaction_of_drugs",
    "description": "Known interactions.",
    "parameter": {"type": "object", "properties": {"drugs": {"type": "array", "required": True}}},
}
AGENT = {
    "name": "CallAgent",
    "description": "Have a plan carried out.",
    "parameter": {"type": "object", "properties": {"solution": {"type": "string", "required": True}}},
}
ERROR = "Not a valid function call, please check the function call format."
USER = {"role": "user", "content": "How much ibuprofen beside warfarin?", "tool_calls": "null", "tools": "null"}


def system(*tools: Any) -> dict[str, Any]:
    return {"role": "system", "content": "Be exact.", "tool_calls": "null", "tools": json.dumps(tools)}


def assistant(content: str, *calls: dict[str, Any] | None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": json.dumps(list(calls) or None), "tools": "null"}


def call(name: str, id: str | None, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **({} if id is None else {"call_id": id})}


def tool(content: Any, id: str | None = None, **more: Any) -> dict[str, Any]:
    wrapper = {"content": content} if id is None else {"content": content, "call_id": id}
    return {"role": "tool", "content": json.dumps(wrapper), "tool_calls": None, "tools": None, **more}


END = assistant("Both are known.\n\n[FinalAnswer] 200 mg.", call("Finish", None))


def _parse(*messages: Any, **more: Any) -> Trace:
    return parse({"id": "x1", "messages": list(messages), **more}, path=Path("x.parquet"), line=9)


def _specs(*items: dict[str, Any]) -> tuple[ToolSpec, ...]:
    return _parse(system(*items), USER, assistant("[FinalAnswer] a", call("Finish", None))).initial_tools


def test_a_whole_trace() -> None:
    trace = _parse(
        system(FINISH, RAG, DOSE),
        USER,
        assistant("Two lookups.", call("dose_of_drug", "aB3", drug="ibuprofen"), call("Tool_RAG", "cD4", limit=2)),
        tool(["interaction_of_drugs"], "cD4"),
        tool({"dose": [200, 1.5], "unit": None}, "aB3"),
        assistant("The pair.", call("interaction_of_drugs", "eF5", drugs=["ibuprofen", "warfarin"])),
        {**tool("bleeding", "eF5"), "tools": json.dumps([FINISH, RAG, DOSE, PAIR])},
        END,
        source="s",
    )
    assert trace.turns == (
        UserMessage("How much ibuprofen beside warfarin?"),
        Step(
            "Two lookups.",
            calls=(ToolCall("dose_of_drug", {"drug": "ibuprofen"}), ToolCall("Tool_RAG", {"limit": 2})),
            results=(ToolResult(0, {"dose": [200, 1.5], "unit": None}), ToolResult(1, ["interaction_of_drugs"])),
            tools_added=_specs(PAIR),
        ),
        Step(
            "The pair.",
            calls=(ToolCall("interaction_of_drugs", {"drugs": ["ibuprofen", "warfarin"]}),),
            results=(ToolResult(0, "bleeding"),),
        ),
        Step("Both are known."),
    )
    assert (trace.id, trace.system, trace.answer, trace.source) == ("x1", "Be exact.", "200 mg.", "s")
    assert [spec.name for spec in trace.initial_tools] == ["Tool_RAG", "dose_of_drug"]
    assert trace.metadata == {}
    check_complete(trace)


def test_tool_specs_become_json_schema_and_can_be_written_back() -> None:
    rag, dose, plain = _specs(RAG, DOSE, {"name": "ping", "description": "", "parameters": {"type": "object"}})
    assert rag.parameters["required"] == ["description", "limit"]
    assert dose.parameters == {
        "type": "object",
        "properties": {"drug": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["drug"],
    }
    assert (rag.origin, dose.origin, plain.parameters) == (
        {"tooluniverse": RAG},
        {"tooluniverse": DOSE},
        {"type": "object"},
    )


def test_real_tool_specs(shared_data: Any) -> None:
    tools = json.loads(shared_data("tooluniverse_v0/tools.json").read_text())
    specs = _specs(*tools)
    assert [spec.name for spec in specs] == [tool["name"] for tool in tools if tool["name"] != "Finish"]
    for spec in specs:
        Draft202012Validator.check_schema(spec.parameters)


@pytest.mark.parametrize("where", ["tool message", "next assistant", "next user", "two searches"])
def test_tools_that_came_later_belong_to_the_search_that_found_them(where: str) -> None:
    grown = json.dumps([FINISH, RAG, DOSE, PAIR])
    search = [assistant("Search.", call("Tool_RAG", "a", description="pairs")), tool(["interaction_of_drugs"], "a")]
    other = [assistant("Again.", call("Tool_RAG", "b", description="else")), tool(["other"], "b")]
    last: list[dict[str, Any]] = [END]
    if where == "tool message":
        search[1]["tools"] = grown
    elif where == "next assistant":
        last = [{**END, "tools": grown}]
    elif where == "next user":
        last = [assistant("Well?", call("Finish", None)), {**USER, "tools": grown}, END]
    else:
        last = [*other, {**END, "tools": grown}]
    trace = _parse(system(FINISH, RAG, DOSE), USER, *search, *last)
    assert [[spec.name for spec in step.tools_added] for step in trace.steps] == [
        ["interaction_of_drugs"],
        *([] for _ in trace.steps[1:]),
    ]


def test_tools_at_the_top_of_the_record_and_repeated_specs() -> None:
    assert [spec.name for spec in _specs(FINISH, RAG, DOSE, RAG, DOSE)] == ["Tool_RAG", "dose_of_drug"]
    trace = _parse(USER, END, tools=json.dumps([FINISH, DOSE]))
    assert [spec.name for spec in trace.initial_tools] == ["dose_of_drug"]
    with pytest.raises(DataError, match="declared twice"):
        _specs(DOSE, {**DOSE, "description": "Another."})


@pytest.mark.parametrize("ids", [True, False])
def test_a_text_without_wrapper_is_the_summary_of_the_step(ids: bool) -> None:
    calls = [call("dose_of_drug", "a" if ids else None, drug=drug) for drug in ("ibuprofen", "warfarin")]
    summary = {"role": "tool", "content": "Ibuprofen 200 mg, warfarin 5 mg."}
    trace = _parse(system(FINISH, DOSE), USER, assistant("Both.", calls[0], {**calls[1], "call_id": "b"}), summary, END)
    assert (trace.steps[0].summary, trace.steps[0].results) == ("Ibuprofen 200 mg, warfarin 5 mg.", ())
    assert len(trace.steps[0].calls) == 2
    check_calls(trace)


def test_missing_ids_go_by_order() -> None:
    calls = [call("dose_of_drug", None, drug=drug) for drug in ("ibuprofen", "warfarin")]
    for results in ([tool("1"), tool("2")], [{"role": "tool", "content": text} for text in ("1", "2")]):
        (step, _) = _parse(system(FINISH, DOSE), USER, assistant("Both.", *calls), *results, END).steps
        assert (step.results, step.summary) == ((ToolResult(0, "1"), ToolResult(1, "2")), None)


@pytest.mark.parametrize("answer", [tool(ERROR), {"role": "tool", "content": ERROR}])
@pytest.mark.parametrize("text", ['Hm.[TOOL_CALLS][{"name": "dose_of', "I only talk."])
def test_an_output_that_could_not_be_parsed(text: str, answer: dict[str, Any]) -> None:
    trace = _parse(system(FINISH, DOSE), USER, assistant(text), answer, END)
    error = ToolResult(None, ERROR, is_error=True)
    assert trace.steps[0] == Step(raw_output=text, status=StepStatus.UNPARSABLE, results=(error,))
    assert trace.answer == "200 mg."


def test_an_output_that_could_not_be_parsed_and_got_no_answer() -> None:
    text = 'Hm.[TOOL_CALLS][{"name": "dose_of'
    trace = _parse(system(DOSE), USER, assistant(text), END)
    assert trace.steps[0] == Step(raw_output=text, status=StepStatus.UNPARSABLE)


def test_a_forced_finish() -> None:
    text = f"{FORCED_BEGINNING} and general knowledge.\n\n[FinalAnswer] Perhaps 200 mg."
    for last in (assistant(text), assistant(text, call("Finish", None))):
        trace = _parse(system(FINISH, DOSE), USER, last)
        assert trace.steps[-1].status is StepStatus.FORCED
        assert trace.steps[-1].thought == f"{FORCED_BEGINNING} and general knowledge."
        assert trace.answer == "Perhaps 200 mg."


def test_a_nested_agent_is_a_trace_of_its_own() -> None:
    nested = [system(FINISH, DOSE), USER, assistant("Look.", call("dose_of_drug", "n", drug="x")), tool("5", "n"), END]
    calls = [call("CallAgent", "a", solution="by dose"), call("CallAgent", "b", solution="by pair")]
    steps = _parse(
        system(FINISH, AGENT), USER, assistant("Ask.", *calls), tool(nested, "a"), tool("no", "b"), END
    ).steps
    inner, plain = steps[0].results
    assert (inner.content, plain) == ("200 mg.", ToolResult(1, "no"))
    assert inner.sub_trace is not None and inner.sub_trace.id == "x1/0.0"
    assert [step.thought for step in inner.sub_trace.steps] == ["Look.", "Both are known."]


def test_finish_before_a_follow_up_ends_the_turn_only() -> None:
    again = {**USER, "content": "And for a child?"}
    trace = _parse(system(FINISH, DOSE), USER, END, again, END)
    assert trace.turns[1] == Step("Both are known.\n\n200 mg.")
    assert trace.answer == "200 mg."


def test_columns_as_parquet_exports_have_them() -> None:
    messages = [
        system(FINISH, DOSE),
        USER,
        assistant("Look.", call("dose_of_drug", "n", drug="x")),
        tool("5", "n"),
        END,
    ]
    expected = _parse(*messages)
    keys = ("role", "content", "tool_calls", "tools")
    arrow = [{key: message.get(key) for key in keys} for message in messages]
    decoded = [
        {**message, **{key: json.loads(message[key] or "null") for key in ("tool_calls", "tools")}} for message in arrow
    ]
    for column, value in {
        "messages": arrow,
        "conversation": json.dumps(arrow),
        "conversations": decoded,
    }.items():
        trace = parse({"id": "x1", column: value}, path=Path("x.parquet"), line=9)
        assert trace == expected
    assert parse({"messages": arrow}, path=Path("x.parquet"), line=9).id == "x-9"


def test_spellings_of_calls() -> None:
    single = {**assistant(""), "tool_calls": json.dumps({"name": "dose_of_drug", "parameters": '{"drug": "x"}'})}
    empty = assistant("", {"name": "Tool_RAG", "arguments": None})
    steps = _parse(system(RAG, DOSE), USER, single, tool("5"), empty, tool([]), END).steps
    assert steps[0].calls == (ToolCall("dose_of_drug", {"drug": "x"}),)
    assert steps[1].calls == (ToolCall("Tool_RAG", {}),)


FAULTS: dict[str, tuple[list[Any], str, int | None]] = {
    "calls torn": ([USER, {**assistant("a"), "tool_calls": '[{"name": "f'}, tool("1"), END], "calls_not_json", 0),
    "tools torn": ([{**system(), "tools": "[{"}, USER, END], "tools_not_json", None),
    "result with NaN": ([USER, assistant("", call("f", "a")), {**tool(1), "content": '{"content": NaN}'}, END],
                        "result_not_json", 0),
    "foreign id": ([USER, assistant("", call("f", "a")), tool("1", "b"), END], "result_without_call", 0),
    "two results": ([USER, assistant("", call("f", "a")), tool("1", "a"), tool("1", "a"), END], "duplicate_result", 0),
    "no result": ([USER, assistant("", call("f", "a")), assistant("", call("f", "b")), tool("1", "b"), END],
                  "call_without_result", 0),
    "result first": ([tool("1", "a"), USER, END], "result_without_call", None),
    "arguments": ([USER, assistant("", {"name": "f", "arguments": [1]}), tool("1"), END], "arguments_not_object", 0),
    "call no object": ([USER, assistant("", 5), tool("1"), END], "wrong_type", 0),  # type: ignore[arg-type]
    "empty answer": ([USER, assistant("[FinalAnswer]", call("Finish", None))], "empty_answer", 0),
    "nested trace": ([USER, assistant("", call("CallAgent", "a")), tool([{"role": "user", "content": "q"}], "a"), END],
                     "no_steps", 0),
    "empty": ([], "empty_trace", None),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "reason", "step"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_have_stable_reasons_and_name_trace_and_step(messages: list[Any], reason: str, step: int | None) -> None:
    with pytest.raises(DataError) as caught:
        _parse(*messages)
    assert (caught.value.reason, caught.value.step) == (reason, step)
    assert caught.value.trace_id.startswith("x1")


def test_odd_values_are_faults_and_never_crash() -> None:
    sound = [system(RAG, DOSE), USER, assistant("Look.", call("dose_of_drug", "n", drug="x")), tool("5", "n"), END]
    for odd in (None, 5, 1.5, True, "", "x", [], {}, [1], {"a": 1}, [None], "[1]", '{"a": 1}', '[{"name": 1}]'):
        for position in range(len(sound)):
            for key in ("role", "content", "tool_calls", "tools"):
                changed = [dict(message) for message in sound]
                changed[position][key] = odd
                try:
                    trace = _parse(*changed)
                    check_complete(trace)
                    check_calls(trace)
                except DataError as error:
                    assert error.reason != "invalid_record", error


def test_keys_of_tool_messages_may_have_any_name() -> None:
    more = {"call_id": "z", "sub_trace": 1, "position": 2}
    end = assistant("[FinalAnswer] 1", call("Finish", "b"))
    step = assistant("t", call("dose_of_drug", "a", drug="x"))
    made = _parse(system(DOSE), USER, step, {**tool("1", "a"), **more}, end)
    assert made.steps[0].results[0].content == "1"
    assert made.metadata["message_fields"] == [{"message": 3, **more}]
