"""What the formats share: how messages become turns, beyond what test_openai checks of the format itself."""

from __future__ import annotations

import json

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
