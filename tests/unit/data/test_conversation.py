"""What the formats share: how messages become turns, beyond what test_openai checks of the format itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.openai_records import TOOLS, assistant, call, record, tool, user
from tests.unit.data.test_openai import OLDER
from tests.unit.data.test_openai import _messages as of_messages
from tests.unit.data.test_openai import _parse as parse_one
from txagent_train.core.errors import DataError
from txagent_train.core.records import DataKind, ToolCall
from txagent_train.data.checks import check_complete, kind_of


def test_the_older_form_of_calls_is_the_same_conversation() -> None:
    older = [user(), assistant("Look.", function_call=OLDER), {"role": "function", "name": "get_dose", "content": "1"}]
    newer = [user(), assistant("Look.", call(id=None)), tool("1", id=None)]
    assert of_messages(*older, assistant("Done.")).turns == of_messages(*newer, assistant("Done.")).turns
    functions = [item["function"] for item in TOOLS]
    trace = parse_one({"id": "t", "messages": [*older, assistant("Done.")], "functions": functions})
    assert [spec.name for spec in trace.initial_tools] == ["get_dose", "list_drugs"]
    with pytest.raises(DataError, match="both tools and functions"):
        parse_one(record(functions=functions))


def test_parameters_stand_for_arguments_and_a_text_is_parsed_once() -> None:
    for arguments in ({"drug": "x"}, '{"drug": "x"}'):
        written = {"name": "get_dose", "parameters": arguments, "arguments": None}
        (step,) = of_messages(user(), assistant(None, written)).steps
        assert step.calls == (ToolCall("get_dose", {"drug": "x"}),)


def test_a_fault_of_arguments_names_trace_step_and_call() -> None:
    calls = [call(id="c1"), call("list_drugs", '"{}"', id="c2")]
    with pytest.raises(DataError, match=r"trace t1, step 1: message 3: call c2: the arguments .* list_drugs .* twice"):
        of_messages(user(), assistant(None, call()), tool(), assistant(None, *calls))
    with pytest.raises(DataError, match="call 1: the arguments"):
        of_messages(user(), assistant(None, call(id=None), call("list_drugs", "[", id=None)))


def test_messages_as_json_text_are_the_same() -> None:
    whole = record()
    assert parse_one({**whole, "messages": json.dumps(whole["messages"])}) == parse_one(whole)


def test_a_message_may_say_that_it_is_not_trained_on() -> None:
    trace = of_messages(user(), assistant("Hm.", train=False), user("?"), assistant("Done.", train=True))
    assert [step.train for step in trace.steps] == [False, True] and trace.metadata == {}


def test_chat_has_no_answer_and_a_trace_without_calls_has_one() -> None:
    messages = [user("Hi."), assistant("Hello."), user("Bye."), assistant("Bye.")]
    chat = parse_one({"id": "c", "messages": messages, "tools": []})
    assert ([step.thought for step in chat.steps], chat.answer) == (["Hello.", "Bye."], None)
    check_complete(chat)
    assert (kind_of(chat), kind_of(of_messages(*messages))) == (DataKind.CHAT, DataKind.TRACE)
    assert of_messages(*messages).answer == "Bye."
    marked = parse_one({"id": "c", "messages": [user(), assistant("Hm. [FinalAnswer] No.")]})
    assert (marked.answer, kind_of(marked)) == ("No.", DataKind.TRACE)
    with pytest.raises(DataError) as caught:
        check_complete(parse_one({"id": "c", "messages": messages[:3]}))
    assert caught.value.reason == "incomplete"
    for text, reason in ((" ", "empty_answer"), ("<tool_call>x", "calls_in_text")):
        with pytest.raises(DataError) as caught:
            parse_one({"id": "c", "messages": [user(), assistant(text)]})
        assert caught.value.reason == reason


def _fault(*messages: Any, **more: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        parse_one(record("t1", [user(), *messages], **more))
    return caught.value


@pytest.mark.parametrize(
    "more",
    [
        {"thinking": "hm"},
        {"reasoning": "hm", "thinking": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.encrypted", "data": "eA=="}]},
    ],
)
def test_every_name_of_reasoning_is_read(more: dict[str, Any]) -> None:
    (step, _) = of_messages(user(), assistant("Look.", call(), **more), tool(), assistant("Done.")).steps
    assert (step.reasoning, step.thought) == ("hm", "Look.")


def test_a_thought_beside_empty_content_is_the_thought() -> None:
    for content in (None, "", "Look."):
        (step, _) = of_messages(user(), assistant(content, call(), thought="Look."), tool(), assistant("Done.")).steps
        assert step.thought == "Look."


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"thought": "Other."}, "two_thoughts"),
        ({"thinking": "a", "reasoning": "b"}, "two_reasonings"),
        ({"reasoning_details": "hm"}, "wrong_type"),
        ({"reasoning_details": [{"type": "reasoning.new", "words": "hm"}]}, "unreadable_reasoning"),
        ({"weight": 10**400}, "invalid_weight"),
    ],
)
def test_thoughts_and_weights_that_cannot_be_read_are_faults(more: dict[str, Any], reason: str) -> None:
    assert _fault(assistant("Look.", call(), **more), tool(), assistant("Done.")).reason == reason


@pytest.mark.parametrize("key", ["trian", "tool_call", "weigth", "contents"])
def test_a_misspelt_key_is_a_fault(key: str) -> None:
    error = _fault(assistant("Done.", **{key: 1}))
    assert (error.reason, "did you mean" in str(error)) == ("unknown_key", True)


def test_other_keys_of_messages_are_kept() -> None:
    trace = of_messages(user(), assistant("Done.", refusal="none", tokens=3, annotations=[1]))
    assert trace.metadata["message_fields"] == [{"message": 1, "refusal": "none", "tokens": 3, "annotations": [1]}]


def test_a_record_may_say_how_all_its_steps_are_trained_on() -> None:
    messages = [user(), assistant(None, call(), weight=0.5), tool(), assistant("Done.", train=True)]
    trace = parse_one(record("t", messages, weight=4))
    assert [(step.train, step.weight) for step in trace.steps] == [(True, 2.0), (True, 4.0)]
    assert not any(step.train for step in parse_one(record("t", messages, train=False)).steps)
    assert _fault(assistant("Done."), train="no").reason == "wrong_type"
    assert _fault(assistant("Done."), weight="2").reason == "invalid_weight"


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_a_call_without_arguments_may_say_nothing(arguments: str | None) -> None:
    written = [call("list_drugs", arguments), {"function": {"name": "list_drugs"}}]
    (step, _) = of_messages(user(), assistant(None, *written), tool(), tool(id=None), assistant("Done.")).steps
    assert step.calls == (ToolCall("list_drugs", {}),) * 2


@pytest.mark.parametrize("depth", [120, 480, 700])
def test_what_is_nested_too_deeply_is_a_fault(depth: int) -> None:
    deep: Any = {}
    for _ in range(depth):
        deep = {"items": deep}
    call_of = call(arguments=json.dumps(deep))
    assert _fault(assistant(None, call_of), tool(), assistant("Done.")).reason == "nested_too_deeply"
    assert _fault(assistant(None, call()), tool(deep), assistant("Done.")).reason == "nested_too_deeply"
    assert _fault(assistant("Done."), tools=[{"name": "f", "parameters": deep}]).reason == "nested_too_deeply"
    assert _fault(assistant("Done."), note=deep).reason == "nested_too_deeply"
