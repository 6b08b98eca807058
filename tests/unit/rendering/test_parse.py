"""Reading model output: the trained format, the spellings models fall back to, and what is not a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.core.records import StepStatus
from txagent_train.rendering.parse import parse_output
from txagent_train.rendering.wire import WireFormat

CALL = WireFormat("llama3", "txagent", "call")
TEXT = WireFormat("chatml", "hermes", "text")


@pytest.mark.parametrize("wire", [CALL, TEXT])
@pytest.mark.parametrize(
    "text",
    [
        'I look.[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]',
        'I look.[TOOL_CALLS] {"name": "f", "arguments": {"x": 1}}',
        'I look.[TOOL_CALLS][{"name": "f", "parameters": {"x": 1}}] and more',
        'I look.\n<tool_call>\n{"name": "f", "arguments": "{\\"x\\": 1}"}\n</tool_call>',
        'I look.\n<tool_call>{"name": "f", "arguments": {"x": 1}}',
        'I look.<|python_tag|>{"name": "f", "parameters": {"x": 1}}',
        'I look.[TOOL_CALLS][{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]',
        '<think>hm</think>\n\nI look.[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]',
    ],
)
def test_spellings_of_a_call(text: str, wire: WireFormat) -> None:
    parsed = parse_output(text, wire)
    assert parsed.step.thought == "I look."
    assert [(call.name, call.arguments) for call in parsed.step.calls] == [("f", {"x": 1})]
    assert parsed.answer is None and parsed.step.status is StepStatus.OK


@pytest.mark.parametrize(
    "text", ['{"name": "f", "arguments": {}}', '```json\n[{"name": "f"}]\n```', '[{"name": "f", "arguments": null}]']
)
def test_output_that_is_only_json(text: str) -> None:
    assert [call.name for call in parse_output(text, CALL).step.calls] == ["f"]


def test_parallel_calls_and_several_blocks() -> None:
    text = 'a<tool_call>{"name": "f"}</tool_call>\n<tool_call>[{"name": "g"}, {"name": "h"}]</tool_call>'
    assert [call.name for call in parse_output(text, TEXT).step.calls] == ["f", "g", "h"]


def test_number_types_and_key_order_are_kept() -> None:
    arguments = (
        parse_output('[TOOL_CALLS][{"name": "f", "arguments": {"b": 1.0, "a": 1, "c": true}}]', CALL)
        .step.calls[0]
        .arguments
    )
    assert list(arguments) == ["b", "a", "c"]
    assert [type(value) for value in arguments.values()] == [float, int, bool]


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ('Done.\n\n[FinalAnswer] 42[TOOL_CALLS][{"name": "Finish", "arguments": {}}]', "42", "Done."),
        ("[FinalAnswer] 42", "42", ""),
        ('[FinalAnswer] 42[TOOL_CALLS][{"name": "Fin', "42", ""),
        ('It is 42.[TOOL_CALLS][{"name": "Finish", "arguments": {}}]', "It is 42.", ""),
        ('Done.\n\n[FinalAnswer] 42\n<tool_call>\n{"name": "Finish", "arguments": {}}\n</tool_call>', "42", "Done."),
    ],
)
def test_final_answers(text: str, answer: str, thought: str) -> None:
    parsed = parse_output(text, CALL)
    assert (parsed.answer, parsed.step.thought, parsed.step.calls) == (answer, thought, ())


@pytest.mark.parametrize(
    "text",
    [
        'Done. [FinalAnswer] 42[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]',
        'Done. [FinalAnswer] 42\n<tool_call>\n{"name": "f"}\n</tool_call>\n<tool_call>{"name": "Finish"}</tool_call>',
        'Done. [FinalAnswer] 42[TOOL_CALLS][{"name": "f", "argu',
    ],
)
def test_a_call_beside_an_answer_is_kept_on_record(text: str) -> None:
    parsed = parse_output(text, CALL)
    assert (parsed.answer, parsed.step.thought, parsed.step.calls) == ("42", "Done.", ())
    assert parsed.step.status is StepStatus.OK and parsed.step.raw_output == text
    assert parse_output('[FinalAnswer] 42[TOOL_CALLS][{"name": "Finish"}]', CALL).step.raw_output is None


def test_a_plain_last_message_is_the_answer_where_the_format_says_so() -> None:
    assert parse_output(" Take it with food. ", TEXT).answer == "Take it with food."
    assert parse_output("Take it with food.", CALL).step.status is StepStatus.UNPARSABLE


@pytest.mark.parametrize(
    "text",
    [
        "I look.[TOOL_CALLS][{",
        '[TOOL_CALLS][{"arguments": {}}]',
        '[TOOL_CALLS][{"name": "f", "arguments": [1]}]',
        '[TOOL_CALLS][{"name": "f", "arguments": {"x": NaN}}]',
        "[TOOL_CALLS]42",
        "<tool_call></tool_call>",
        "",
        "  ",
        '[TOOL_CALLS][{"name": "Finish", "arguments": {}}]',
    ],
)
def test_unreadable_output_is_a_value(text: str) -> None:
    parsed = parse_output(text, CALL)
    assert parsed.step.status is StepStatus.UNPARSABLE
    assert parsed.step.raw_output == text and parsed.answer is None


@given(st.text(alphabet=st.sampled_from('[]{}":, \n<>/|TOOL_CALLSFinalAnswertool_callthinkname01.\\'), max_size=60))
def test_never_raises(text: str) -> None:
    for wire in (CALL, TEXT):
        parse_output(text, wire)
        parse_output(f"[TOOL_CALLS]{text}", wire)
