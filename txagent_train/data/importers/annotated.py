"""Steps with what a message of the OpenAI form has no words for: unparsable outputs, summaries, tools that came later.

A format that has them hands its messages on in the OpenAI form, so that one place decides what a conversation is, and
notes the rest beside them, step by step; ``AnnotatedConversation.annotated`` puts the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, Json, JsonObject, Step, StepStatus, ToolResult, ToolSpec, Trace, Turn
from txagent_train.data.importers.conversation import Conversation
from txagent_train.data.importers.openai import build_trace, default_id, list_of
from txagent_train.data.importers.values import parse_once, text_field, text_of
from txagent_train.data.importers.words import FINAL_ANSWER

MESSAGES = ("messages", "conversations", "conversation")
"""Columns that hold the messages, in data sets of one kind or another."""

_OUTPUT = ("content", "tool_calls", "function_call")


@dataclass
class StepNote:
    """What is known of a step beside its message. ``results`` are by the place of their calls."""

    status: StepStatus = StepStatus.OK
    raw_output: str | None = None
    summary: str | None = None
    results: dict[int | None, tuple[Json, Trace | None]] = field(default_factory=dict)
    tools_added: list[ToolSpec] = field(default_factory=list)

    def apply(self, step: Step) -> Step:
        """The step with the note in it."""
        noted = [(result, *self.results.get(result.call_index, (result.content, None))) for result in step.results]
        if self.status is StepStatus.UNPARSABLE:
            results = tuple(ToolResult(None, content, is_error=True) for _, content, _ in noted)
            step = replace(step, thought="", calls=(), results=())
        else:
            results = tuple(replace(result, content=content, sub_trace=below) for result, content, below in noted)
        return replace(
            step,
            results=() if self.summary is not None else results,
            summary=self.summary,
            raw_output=step.raw_output if self.raw_output is None else self.raw_output,
            tools_added=tuple(self.tools_added),
            status=self.status,
        )


class AnnotatedConversation(Conversation):
    """A conversation with a note for each step: assistant and tool messages come through the methods of this class."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[StepNote] = []

    @contextmanager
    def reading(self, position: int, message: object) -> Iterator[None]:
        """Name the message and the step in an error that comes up before the message is handed on."""
        opens_step = isinstance(message, dict) and message.get("role") == "assistant"
        step = len(self.notes) if opens_step else len(self.notes) - 1
        try:
            yield
        except DataError as error:
            if error.step is not None or error.problem.startswith("message "):
                raise  # of ``add``, which has named them
            problem = f"message {position}: {error.problem}"
            raise DataError(problem, reason=error.reason, step=step if step >= 0 else None, fix=error.fix) from None

    def add_step(self, position: int, message: JsonObject, *, ends_turn: bool) -> StepNote:
        """Add an assistant message. ``ends_turn`` says that the user speaks next: Finish then ends no more than that.

        Raises:
            DataError: as ``add``.
        """
        calls = message.get("tool_calls")
        if ends_turn and isinstance(calls, list) and [_name(call) for call in calls] == [FINISH]:
            # The text stays for the user, and no word of a wire format stays in it.
            parts = text_of(message.get("content")).split(FINAL_ANSWER)
            content = "\n\n".join(part.strip() for part in parts if part.strip())
            message = {**message, "content": content, "tool_calls": None}
        self.add(position, {**message, "role": "assistant"})
        self.notes.append(StepNote())
        return self.notes[-1]

    def add_unparsable(self, position: int, message: JsonObject, raw_output: str, errors: int) -> StepNote:
        """Add an output that held no readable call, and that ``errors`` tool messages answer.

        What ``message`` says beside the output, such as its reasoning and weight, is kept.
        """
        # A stand-in that the reader takes, so that the answers have something to answer.
        stand_in = {"tool_calls": [as_call({"name": "unparsable"})] * errors} if errors else {"content": "unparsable"}
        beside = {key: value for key, value in message.items() if key not in _OUTPUT}
        note = self.add_step(position, {**beside, **stand_in}, ends_turn=False)
        note.status, note.raw_output = StepStatus.UNPARSABLE, raw_output
        return note

    def add_result(
        self,
        position: int,
        content: Json,
        more: JsonObject,
        *,
        call_id: object = None,
        sub_trace: Trace | None = None,
    ) -> None:
        """Add what a tool answered. ``more`` are the other keys of its message.

        Raises:
            DataError: as ``add``.
        """
        self.add(position, {**more, "role": "tool", "tool_call_id": call_id, "content": ""})
        assert self._open is not None, "a result was added to it"
        self.notes[-1].results[self._open.results[-1].call_index] = (content, sub_trace)

    def annotated(self) -> tuple[Turn, ...]:
        """The turns with their notes, once the conversation has ended."""
        notes = iter(self.notes)
        return tuple(next(notes).apply(turn) if isinstance(turn, Step) else turn for turn in self.turns)


Reader: TypeAlias = Callable[[JsonObject, str], tuple[AnnotatedConversation, tuple[ToolSpec, ...]]]
"""Reads the messages and tools of a record, given its trace id; the conversation has not ended yet."""


def trace_of(record: JsonObject, read: Reader, *, path: Path, line: int) -> Trace:
    """The trace of a record whose conversation ``read`` reads; without id it is named after its place.

    Raises:
        DataError: names the trace, and the step where there is one.
    """
    trace_id = default_id(path, line)
    try:
        trace_id = text_field(record, "id", default=trace_id)
        conversation, tools = read(record, trace_id)
        conversation.end(has_tools=bool(tools))
        used = {"tools", *MESSAGES}
        return build_trace(record, trace_id, conversation, tools, used=used, turns=conversation.annotated())
    except DataError as error:
        raise error.at(trace_id=trace_id) from None


def messages_of(record: JsonObject) -> list[object]:
    """The messages of a record, under any of their names, as a list or as the JSON text of one.

    Raises:
        DataError: there are none.
    """
    name = next((name for name in MESSAGES if name in record), MESSAGES[0])
    if name in record:
        record = {name: parse_once(record[name], name, "messages_not_json")}
    return list_of(record, name)


def as_call(value: Any) -> Any:
    """A call of a recording in the OpenAI form: its id under ``id``, and ``{}`` where it gives no arguments.

    What is no call is handed on as it is, for the reader to say what is wrong with it.
    """
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict):
        return value
    made = {key: item for key, item in function.items() if item is not None and key in ("arguments", "parameters")}
    return {
        "id": value.get("call_id") or value.get("id"),
        "function": {"name": function.get("name"), **(made or {"arguments": {}})},
    }


def _name(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    return function.get("name") if isinstance(function, dict) else None
