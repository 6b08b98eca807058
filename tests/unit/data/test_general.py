from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.general import SUMMARY_INSTRUCTION, as_chat, is_plain_row, parse_qa, parse_summary

PATH = Path("dir/alpaca.v2.jsonl")


def _said(trace: Trace) -> list[str]:
    return [turn.content if isinstance(turn, UserMessage) else turn.thought for turn in trace.turns]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "Q?", "answer": "A."}, ["Q?", "A."]),
        ({"instruction": "Do.", "input": "", "output": "Done."}, ["Do.", "Done."]),
        ({"instruction": "Do.", "input": "this", "output": "Done."}, ["Do.\n\nthis", "Done."]),
        ({"instruction": "Do.", "context": "this", "response": "Done.", "category": "x"}, ["Do.\n\nthis", "Done."]),
        ({"prompt": "2 + 2", "completion": 4}, ["2 + 2", "4"]),
        ({"instruction": "Do.", "input": None, "output": "Done.", "text": "Below is ..."}, ["Do.", "Done."]),
    ],
)
def test_rows_of_questions_are_one_exchange(row: dict[str, Any], said: list[str]) -> None:
    trace = parse_qa(row, path=PATH, line=7)
    assert _said(trace) == said
    assert (trace.id, trace.answer, trace.initial_tools) == ("alpaca-7", None, ())


@pytest.mark.parametrize("row", [{"text": "Long.", "summary": "S."}, {"input": "Long.", "output": "S."}])
def test_rows_of_summaries_carry_the_instruction(row: dict[str, Any]) -> None:
    assert _said(parse_summary(row, path=PATH, line=1)) == [f"{SUMMARY_INSTRUCTION}\n\nLong.", "S."]
    assert "one sentence" in SUMMARY_INSTRUCTION


def test_what_a_row_says_of_itself_is_kept() -> None:
    row = {"id": 0, "question": "Q", "answer": "A", "system": "S", "entities": ["e"], "license": "MIT", "level": 3}
    trace = parse_qa(row, path=PATH, line=1)
    assert (trace.id, trace.system, trace.entities, trace.license, trace.metadata) == (
        "0",
        "S",
        ("e",),
        "MIT",
        {"level": 3},
    )


@pytest.mark.parametrize(
    ("row", "reason", "match"),
    [
        ({"question": "Q"}, "missing_key", "no answer; its keys are: question"),
        ({"question": " ", "answer": "A"}, "empty_user_message", "empty"),
        ({"question": "Q", "answer": " "}, "empty_step", "says nothing"),
        ({}, "missing_key", "keys are: none"),
        ({"question": "Q", "instruction": "I", "answer": "A"}, "ambiguous_row", "question and instruction"),
        ({"question": "Q", "options": {"A": "x"}, "answer": "A"}, "unsupported_row", "has options"),
        ({"question": ["Q"], "answer": "A"}, "wrong_type", "question must be text, not list"),
        ({"question": "Q", "answer": True}, "wrong_type", "answer must be text, not bool"),
        ({"id": "r1", "question": "Q", "answer": "A", "entities": [1]}, "wrong_type", "trace r1: entities"),
        ({"id": "r1", "question": "Q", "answer": "A", "entities": "x"}, "wrong_type", "trace r1: entities"),
    ],
)
def test_rows_that_do_not_tell_are_faults(row: dict[str, Any], reason: str, match: str) -> None:
    with pytest.raises(DataError, match=match) as caught:
        parse_qa(row, path=PATH, line=1)
    assert caught.value.reason == reason


def test_conversations_are_no_rows() -> None:
    assert is_plain_row({"question": "Q"})
    assert not any(is_plain_row({"question": "Q", key: []}) for key in ("messages", "turns", "conversations"))


def test_an_answer_becomes_a_reply() -> None:
    turns = (UserMessage("Q"), Step("A"), UserMessage("R"), Step("Hm."))
    assert _said(as_chat(Trace("t", turns, answer="B"))) == ["Q", "A", "R", "Hm.\n\nB"]
    assert as_chat(Trace("t", turns, answer="B")).answer is None
    plain = Trace("t", turns)
    assert as_chat(plain) is plain


def test_chat_has_neither_tools_nor_calls() -> None:
    spec = ToolSpec("get", "", {})
    call = Step(calls=(ToolCall("get", {}),), results=(ToolResult(0, "x"),))
    for trace in (
        Trace("t", (UserMessage("Q"), Step("A")), initial_tools=(spec,)),
        Trace("t", (UserMessage("Q"), call, Step("A"))),
        Trace("t", (UserMessage("Q"), Step("A", tools_added=(spec,)))),
    ):
        with pytest.raises(DataError, match=r"no chat\n.*kind: trace") as caught:
            as_chat(trace)
        assert caught.value.reason == "other_kind"
