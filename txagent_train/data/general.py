"""General data without tools: plain rows of questions, instructions and summaries, as chat traces.

    qa        {"question", "answer"}          or {"instruction", "input", "output"}, {"prompt", "completion"}, ...
    summary   {"text", "summary"}             or {"document", "summary"}, {"input", "output"}, ...
    chat      a trace without tools, of one exchange or several

A chat trace has no ``answer``, for that is what ends a run of the agent; each reply is a step that only says something.
Keys that say what a row is (``id``, ``system``, ``source``, ...) are kept, the rest goes into ``metadata``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import DataKind, JsonObject, Step, Trace, UserMessage
from txagent_train.data.importers import Parser
from txagent_train.data.importers.guess import PLAIN

SUMMARY_INSTRUCTION = (
    "Summarize the following text in one sentence. Keep the names, numbers and findings that later steps need."
)
"""What the user asks for in a summary sample, before the text: the work of the paper's summariser, which puts one
sentence in the place of long tool results."""
_PROMPTS = ("question", "instruction", "prompt", "query")
_CONTEXTS = ("input", "context")
_REPLIES = ("answer", "output", "response", "completion")
_TEXTS = ("text", "document", "article", "input")
_SUMMARIES = ("summary", "output", "highlights")
_CHOICES = ("options", "choices")
_TEXT_FIELDS = ("system", "question_id", "source", "license", "teacher")
_EMPTY = (None, "")


def is_plain_row(record: JsonObject) -> bool:
    """Whether a record is a row for the parsers here, and not a conversation for an importer."""
    return not any(key in record for key in PLAIN)


def parse_qa(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The chat trace of a row with a question (or instruction) and its answer; see importers.Parser.

    What an instruction works on (``input``, ``context``) stands after it. A row with options is refused: the question
    without them would be another one.
    """
    choices = next((key for key in _CHOICES if record.get(key)), None)
    if choices is not None:
        fix = "write the options into the question"
        raise DataError(f"the row has {choices} beside its question", reason="unsupported_row", fix=fix)
    prompt, reply = _key_of(record, _PROMPTS, "question"), _key_of(record, _REPLIES, "answer")
    contexts = [key for key in _CONTEXTS if record.get(key) not in _EMPTY]
    user = "\n\n".join(_text(record, key) for key in (prompt, *contexts))
    return _trace(record, user, _text(record, reply), (prompt, reply, *contexts), path=path, line=line)


def parse_summary(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The chat trace of a row with a text and its summary; see importers.Parser."""
    text, summary = _key_of(record, _TEXTS, "text"), _key_of(record, _SUMMARIES, "summary")
    user = f"{SUMMARY_INSTRUCTION}\n\n{_text(record, text)}"
    return _trace(record, user, _text(record, summary), (text, summary), path=path, line=line)


ROW_PARSERS: Mapping[str, Parser] = {DataKind.QA: parse_qa, DataKind.SUMMARY: parse_summary}
"""The parsers of plain rows, by the kind of data."""


def uses_tools(trace: Trace) -> bool:
    """Whether a trace has a tool or a call: what recorded tool use has, and general data has not."""
    return next(trace.tools(), None) is not None or any(step.calls for step in trace.steps)


def as_chat(trace: Trace) -> Trace:
    """The trace as chat: an answer at its end becomes a reply like those before it.

    Raises:
        DataError: reason ``other_kind``: it has tools or calls.
    """
    if uses_tools(trace):
        fix = "set kind: trace for this source, or put records with tools into a file of their own"
        problem = "the record has tools or calls, so it is no chat"
        raise DataError(problem, reason="other_kind", trace_id=trace.id, fix=fix)
    *before, last = trace.turns
    if trace.answer is None:
        return trace
    assert isinstance(last, Step)
    thought = "\n\n".join(text for text in (last.thought.strip(), trace.answer) if text)
    return replace(trace, turns=(*before, replace(last, thought=thought)), answer=None)


def _key_of(record: JsonObject, keys: Sequence[str], what: str) -> str:
    """The one key of the row that names a ``what``. Raises DataError where there is none, or several."""
    present = [key for key in keys if record.get(key) not in _EMPTY]
    if len(present) > 1:
        problem = f"the row has {' and '.join(present)}, and each could be the {what}"
        raise DataError(problem, reason="ambiguous_row", fix="keep one of them")
    if not present:
        problem = f"the row has no {what}; its keys are: {', '.join(record) or 'none'}"
        raise DataError(problem, reason="missing_key", fix=f"name the {what} with one of: {', '.join(keys)}")
    return present[0]


def _text(record: JsonObject, key: str) -> str:
    value = record[key]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise DataError(f"{key} must be text, not {type(value).__name__}", reason="wrong_type")
    return str(value)  # exporters turn answers that are numbers into numbers


def _trace(record: JsonObject, user: str, reply: str, used: Sequence[str], *, path: Path, line: int) -> Trace:
    named = record.get("id") not in _EMPTY
    trace_id = _text(record, "id") if named else f"{path.name.split('.')[0]}-{line}"
    entities = record.get("entities") or []
    if not isinstance(entities, list):
        raise DataError("entities must be a list of texts", reason="wrong_type", trace_id=trace_id)
    known = ("id", "entities", *_TEXT_FIELDS, *used)
    texts = {key: _text(record, key) for key in _TEXT_FIELDS if record.get(key) not in _EMPTY}
    try:
        return Trace(
            id=trace_id,
            turns=(UserMessage(user), Step(thought=reply)),
            entities=tuple(entities),
            system=texts.get("system"),
            question_id=texts.get("question_id", ""),
            source=texts.get("source", ""),
            license=texts.get("license", ""),
            teacher=texts.get("teacher", ""),
            metadata={key: value for key, value in record.items() if key not in known},
        )
    except DataError as error:
        raise error.at(trace_id=trace_id) from None
