"""Checks of a whole trace that its records cannot make alone: calls against tools, completeness, text."""

from __future__ import annotations

import json
from collections.abc import Mapping

from jsonschema.exceptions import best_match

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, DataKind, Step, ToolCall, ToolSpec, Trace
from txagent_train.data.decompose import is_trained
from txagent_train.data.schemas import schema_validator

MESSAGE_LIMIT = 200
"""Characters of a validator's message that are shown: it may quote the whole argument."""
CALL_FAULTS = ("undeclared_tool", "invalid_arguments", "invalid_tool_schema")
"""The reasons of check_calls."""
INCOMPLETE = "incomplete"
"""The reason of check_complete."""
FIX_CALL = (
    "or set the step's train to false, or keep such traces (--invalid-calls keep; in a recipe data.invalid_calls)"
)
FIX_SCHEMA = "write it as JSON schema 2020-12; which properties are required is a list beside properties"


def check_calls(trace: Trace) -> None:
    """Every call of a trained step names a tool that the step sees, with arguments that fit its JSON schema.

    A step sees the initial tools and what the results of earlier steps added. A step that is not trained on may
    hold a wrong call: the error that answers it, and the correction after it, are good data.

    Raises:
        DataError: reason ``undeclared_tool``, ``invalid_arguments`` or ``invalid_tool_schema``; names the step.
    """
    seen = {tool.name: tool for tool in trace.initial_tools}
    for index, step in enumerate(trace.steps):
        if is_trained(step):
            try:
                for call in step.calls:
                    check_call(call, seen)
            except DataError as error:
                raise DataError(
                    error.problem, reason=error.reason, trace_id=trace.id, step=index, fix=error.fix
                ) from None
        for tool in step.tools_added:
            seen.setdefault(tool.name, tool)


def check_call(call: ToolCall, seen: Mapping[str, ToolSpec]) -> None:
    """The call names one of the tools ``seen``, with arguments that fit its JSON schema. Raises as check_calls."""
    if call.name not in seen:
        problem_text = f"the call names {call.name}, which is not among the {len(seen)} tools"
        raise DataError(problem_text, reason="undeclared_tool", fix=f"declare the tool, {FIX_CALL}")
    try:
        problem = best_match(schema_validator(json.dumps(seen[call.name].parameters)).iter_errors(call.arguments))
    except Exception as error:  # a schema is anybody's text, and jsonschema raises what it meets in it
        detail = _shortened(getattr(error, "message", "") or str(error) or type(error).__name__)
        problem_text = f"the parameters of {call.name} are not a usable JSON schema: {detail}"
        raise DataError(problem_text, reason="invalid_tool_schema", fix=FIX_SCHEMA) from None
    if problem is not None:
        place = problem.json_path.removeprefix("$").removeprefix(".")
        where = f" at {place}" if place else ""
        problem_text = f"the arguments of {call.name} break its schema{where}: {_shortened(problem.message)}"
        raise DataError(problem_text, reason="invalid_arguments", fix=f"mend the call or the schema, {FIX_CALL}")


def _shortened(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + "..."


def kind_of(trace: Trace) -> DataKind:
    """Chat is text alone: no tool, no call, and no answer, which only an agent's trace has."""
    talks = trace.answer is None and not trace.initial_tools
    plain = all(not (step.calls or step.tools_added or step.raw_output) for step in trace.steps)
    return DataKind.CHAT if talks and plain else DataKind.TRACE


def is_complete(trace: Trace) -> bool:
    """Whether nothing is missing that should follow.

    A trace ends in an answer. One that ends in calls without results is complete where these are all that it
    teaches: it is single-hop, or the only step trained on is the last (a row that is the prefix of a recording).
    Chat ends with what the model says.
    """
    last = trace.turns[-1]
    if not isinstance(last, Step):
        return False
    if trace.is_complete or kind_of(trace) is DataKind.CHAT:
        return True
    ends_in_calls = bool(last.calls) and not last.results
    return ends_in_calls and [step for step in trace.steps if is_trained(step)] == [last]


def check_complete(trace: Trace) -> None:
    """Raise DataError (reason ``incomplete``) unless the trace is complete; see is_complete."""
    if is_complete(trace):
        return
    last = trace.turns[-1]
    if not isinstance(last, Step):
        problem = "the trace ends with a user message"
    elif last.calls:
        problem = "the trace ends with a call and no answer after it"
    else:
        problem = "the trace ends without an answer"
    fix = "to train on its steps all the same: --incomplete steps (in a recipe data.incomplete)"
    raise DataError(problem, reason=INCOMPLETE, trace_id=trace.id, step=len(trace.steps) - 1, fix=fix)


def check_names(trace: Trace) -> None:
    """Raise DataError (reason ``reserved_tool_name``) where Finish is a tool or a call of the trace.

    Finish ends a trace on the wire; the renderer puts it there, and a record with its own would have two.
    """
    for index, step in enumerate(trace.steps):
        if any(call.name == FINISH for call in step.calls):
            fix = "write what the call finishes with as the last assistant message"
            problem = f"{FINISH} ends a trace and cannot be called inside it"
            raise DataError(problem, reason="reserved_tool_name", trace_id=trace.id, step=index, fix=fix)
    if any(tool.name == FINISH for tool in trace.tools()):
        fix = "leave it out: it is added when a trace is rendered"
        raise DataError(f"a tool is named {FINISH}", reason="reserved_tool_name", trace_id=trace.id, fix=fix)


def check_text(trace: Trace) -> None:
    """Raise DataError (reason ``lone_surrogate``) where a text cannot be written as UTF-8.

    JSON can spell half a character (``\\ud83d``), as programs do that cut text in the middle of an emoji.
    """
    try:
        json.dumps(trace_to_json(trace), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        problem = "a text holds half of a surrogate pair, which is no character"
        raise DataError(problem, reason="lone_surrogate", trace_id=trace.id) from None
