"""Reading what a model wrote. Tolerant about spelling, strict about meaning; never raises.

The format that was trained is tried first. Then what models fall back to: the other syntax, ``<|python_tag|>``, an
output that is nothing but JSON (also fenced). ``parameters`` is read as ``arguments``, arguments encoded as a JSON
string are decoded once, a single call need not stand in a list. An output that holds no readable call is a value
(status ``unparsable``), not an exception: the agent answers it with an error and the model may try again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, Step, StepStatus, ToolCall
from txagent_train.rendering.wire import FINAL_ANSWER_MARKER, PYTHON_TAG, TOOL_CALLS_MARKER, WireFormat

_HERMES_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THINK = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)
_FENCED = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    """``step`` without results, and the answer where the output gives one (the step then has no calls).

    The step keeps the whole text as its ``raw_output`` where a call in it is left out: one beside an answer.
    """

    step: Step
    answer: str | None = None


class _Unreadable(Exception):
    """Internal: the text holds no readable call."""


def _reject_constant(name: str) -> NoReturn:
    raise _Unreadable(name)


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def _decode(text: str) -> Any:
    """The first JSON value of a text; what follows it is left alone (a list may be followed by chatter)."""
    stripped = text.lstrip()
    try:
        value, _ = _DECODER.raw_decode(stripped)
    except (ValueError, RecursionError) as error:
        raise _Unreadable(str(error)) from None
    return value


def _call(value: Any) -> ToolCall:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise _Unreadable("a call is not an object with a name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _decode(arguments)
    try:
        return ToolCall(value["name"], {} if arguments is None else arguments)
    except DataError as error:
        raise _Unreadable(error.problem) from None


def _calls(value: Any) -> list[ToolCall]:
    if isinstance(value, list) and value:
        return [_call(item) for item in value]
    return [_call(value)]


def _split(text: str) -> tuple[str, list[ToolCall]]:
    """The text before the calls, and the calls.

    Raises:
        _Unreadable: there is a marker but no readable call behind it.
    """
    if TOOL_CALLS_MARKER in text:
        before, _, after = text.partition(TOOL_CALLS_MARKER)
        return before, _calls(_decode(after))
    if "<tool_call>" in text:
        before = text.partition("<tool_call>")[0]
        return before, [call for block in _HERMES_BLOCK.findall(text) for call in _calls(_decode(block))]
    if PYTHON_TAG in text:
        before, _, after = text.partition(PYTHON_TAG)
        return before, _calls(_decode(after))
    fenced = _FENCED.fullmatch(text)
    bare = fenced[1] if fenced else text.strip()
    if bare.startswith(("{", "[")):
        try:
            return "", _calls(_decode(bare))
        except _Unreadable:
            return text, []  # JSON that is no call is ordinary text
    return text, []


def _unparsable(text: str) -> ParsedOutput:
    return ParsedOutput(Step(raw_output=text, status=StepStatus.UNPARSABLE))


def parse_output(text: str, wire: WireFormat) -> ParsedOutput:
    """Read one output of the model, decoded without its stop token."""
    reasoning, body = "", text
    if think := _THINK.match(text):
        reasoning, body = think[1].strip(), text[think.end() :]
    broken = False
    try:
        before, calls = _split(body)
    except _Unreadable:
        if wire.finish != "call" or FINAL_ANSWER_MARKER not in body:
            return _unparsable(text)
        # A broken Finish call ends it all the same.
        before, calls, broken = re.split(r"\[TOOL_CALLS\]|<tool_call>", body)[0], [], True
    parsed = _read(before, calls, wire)
    if parsed is None:
        return _unparsable(text)
    left_out = broken or (parsed.answer is not None and any(call.name != FINISH for call in calls))
    return replace(parsed, step=replace(parsed.step, reasoning=reasoning, raw_output=text if left_out else None))


def _read(before: str, calls: list[ToolCall], wire: WireFormat) -> ParsedOutput | None:
    thought = before.strip()
    if wire.finish == "call":
        if FINAL_ANSWER_MARKER in before:
            head, _, answer = before.partition(FINAL_ANSWER_MARKER)
            return ParsedOutput(Step(thought=head.strip()), answer.strip()) if answer.strip() else None
        others = tuple(call for call in calls if call.name != FINISH)
        if others:
            return ParsedOutput(Step(thought=thought, calls=others))
        return ParsedOutput(Step(), thought) if calls and thought else None
    if calls:
        return ParsedOutput(Step(thought=thought, calls=tuple(calls)))
    return ParsedOutput(Step(), thought) if thought else None
