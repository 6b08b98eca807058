"""The records that flow through every stage. Frozen, validated once, at construction.

    Trace ── initial_tools: ToolSpec*
          └─ turns: (UserMessage | Step)*
                                   ├─ calls:       ToolCall*
                                   ├─ results:     ToolResult*   keyed by position of the call
                                   └─ tools_added: ToolSpec*     what a Tool_RAG call returned

Two conventions hold everywhere:

- A call is keyed by its position in the step. Wire ids (``call_id``) belong to the renderer.
- The final answer is the ``answer`` of the trace, and the last turn is then the step that gives it: its
  ``thought`` is the text before the answer, its ``calls`` are empty. ``[FinalAnswer]`` and the ``Finish`` call
  are words of a wire format, put there by the renderer and taken away by the parser; no record holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from txagent_train.core.errors import DataError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Any]

TOOL_RAG = "Tool_RAG"
"""Name of the retrieval tool: its results add tools to the ones a step sees. Never renamed."""
FINISH = "Finish"
"""Name of the call that ends a trace on the wire."""


class StepStatus(StrEnum):
    """How a step's output came about."""

    OK = "ok"
    UNPARSABLE = "unparsable"
    """The model's output held no readable call; an error message was fed back."""
    FORCED = "forced"
    """The loop made the model answer (step limit)."""
    REJECTED = "rejected"
    """Produced, then rejected by a filter; kept for the record, not trained on by default."""


JSON_DEPTH = 100
"""How deep lists and objects may be nested: far beyond any tool's data, and far below what exhausts the stack."""


def check_json(value: object, what: str, depth: int = 0) -> None:
    """Raise DataError unless ``value`` is plain JSON (string keys, finite numbers) at most JSON_DEPTH deep."""
    if depth > JSON_DEPTH:
        raise DataError(f"{what} is nested more than {JSON_DEPTH} levels deep", reason="nested_too_deeply")
    if value is None or isinstance(value, (bool, int, str)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataError(f"{what} holds {value}, which JSON cannot hold", reason="not_json")
        return
    if isinstance(value, list):
        for item in value:
            check_json(item, what, depth + 1)
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise DataError(f"{what} has the key {key!r}, which is not a string", reason="not_json")
            check_json(item, what, depth + 1)
        return
    raise DataError(f"{what} holds a {type(value).__name__}, which is not JSON", reason="not_json")


def _check_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise DataError(f"{what} must be text, not {type(value).__name__}", reason="wrong_type")


def _check_optional_text(value: object, what: str) -> None:
    if value is not None:
        _check_text(value, what)


def _check_flag(value: object, what: str) -> None:
    if not isinstance(value, bool):
        raise DataError(f"{what} must be true or false, not {value!r}", reason="wrong_type")


def _check_tuple(value: object, kind: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        raise DataError(f"{what} must be a tuple of records", reason="wrong_type")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as the model reads it: ``parameters`` is a JSON schema of type object.

    ``origin`` holds what the spec was read from, enough to write it back.
    """

    name: str
    description: str
    parameters: JsonObject
    origin: JsonObject = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_text(self.name, "the name of a tool")
        if not self.name.strip():
            raise DataError("a tool has no name", reason="tool_without_name")
        _check_text(self.description, f"the description of tool {self.name}")
        for what, value in (("parameters", self.parameters), ("origin", self.origin)):
            if not isinstance(value, dict):
                raise DataError(f"the {what} of tool {self.name} must be an object", reason="invalid_tool_spec")
            check_json(value, f"the {what} of tool {self.name}")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it: key order and number types of ``arguments`` are kept."""

    name: str
    arguments: JsonObject

    def __post_init__(self) -> None:
        _check_text(self.name, "the name of a call")
        if not self.name.strip():
            raise DataError("a call names no tool", reason="call_without_name")
        if not isinstance(self.arguments, dict):
            raise DataError(f"the arguments of a call to {self.name} must be an object", reason="arguments_not_object")
        check_json(self.arguments, f"the arguments of a call to {self.name}")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered.

    ``call_index`` is the position of the call in its step; None answers no single call (the error that follows
    an unparsable output). ``content`` is JSON, or text where the tool answered with text. ``sub_trace`` is the
    trace of a nested agent (CallAgent).
    """

    call_index: int | None
    content: Json
    is_error: bool = False
    truncated: bool = False
    sub_trace: Trace | None = None

    def __post_init__(self) -> None:
        if self.call_index is not None and (isinstance(self.call_index, bool) or not isinstance(self.call_index, int)):
            raise DataError("call_index must be an integer or null", reason="wrong_type")
        _check_flag(self.is_error, "is_error")
        _check_flag(self.truncated, "truncated")
        check_json(self.content, "the content of a tool result")


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user says: the question first, follow-ups later."""

    content: str

    def __post_init__(self) -> None:
        _check_text(self.content, "the content of a user message")
        if not self.content.strip():
            raise DataError("a user message is empty", reason="empty_user_message")


@dataclass(frozen=True, slots=True)
class Step:
    """One output of the model and what came back for it.

    ``reasoning`` is a model's hidden <think> text, apart from ``thought``. ``summary`` stands in for ``results``
    where they are too long. ``raw_output`` is the model's text where it could not be parsed, or where the other
    fields do not hold all of it. ``train`` and ``weight`` say whether and how strongly this step is trained on.
    """

    thought: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    tools_added: tuple[ToolSpec, ...] = ()
    summary: str | None = None
    raw_output: str | None = None
    status: StepStatus = StepStatus.OK
    train: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_text(self.thought, "the thought of a step")
        _check_text(self.reasoning, "the reasoning of a step")
        _check_optional_text(self.summary, "the summary of a step")
        _check_optional_text(self.raw_output, "the raw_output of a step")
        _check_flag(self.train, "train")
        _check_tuple(self.calls, ToolCall, "calls")
        _check_tuple(self.results, ToolResult, "results")
        _check_tuple(self.tools_added, ToolSpec, "tools_added")
        if not isinstance(self.status, StepStatus):
            raise DataError(f"{self.status!r} is not a step status", reason="wrong_type")
        if not math.isfinite(self.weight) or self.weight < 0:
            raise DataError(f"the weight of a step is {self.weight}; it must be 0 or more", reason="invalid_weight")
        seen: set[int] = set()
        for result in self.results:
            if result.call_index is None:
                continue
            if not 0 <= result.call_index < len(self.calls):
                raise DataError(
                    f"a result answers call {result.call_index}, but the step has {len(self.calls)}",
                    reason="result_without_call",
                )
            if result.call_index in seen:
                raise DataError(f"call {result.call_index} has two results", reason="duplicate_result")
            seen.add(result.call_index)
        if self.status is StepStatus.UNPARSABLE and self.raw_output is None:
            raise DataError("an unparsable step must keep its raw_output", reason="unparsable_without_output")

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Positions of the calls that have no result."""
        answered = {result.call_index for result in self.results}
        return tuple(index for index in range(len(self.calls)) if index not in answered)


Turn: TypeAlias = UserMessage | Step


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole recorded run of the agent on one question.

    Raises:
        DataError: the turns do not fit each other; the message has the trace id and the step (from 0).
    """

    id: str
    turns: tuple[Turn, ...]
    answer: str | None = None
    system: str | None = None
    initial_tools: tuple[ToolSpec, ...] = ()
    question_id: str = ""
    entities: tuple[str, ...] = ()
    source: str = ""
    round: int = 0
    teacher: str = ""
    license: str = ""
    metadata: JsonObject = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_text(self.id, "the id of a trace")
        if not self.id:
            raise DataError("a trace has no id", reason="missing_id")
        try:
            _check_tuple(self.turns, (UserMessage, Step), "turns")
            _check_tuple(self.initial_tools, ToolSpec, "initial_tools")
            _check_tuple(self.entities, str, "entities")
            for name in ("question_id", "source", "teacher", "license"):
                _check_text(getattr(self, name), name)
            _check_optional_text(self.answer, "the answer")
            _check_optional_text(self.system, "the system prompt")
            if isinstance(self.round, bool) or not isinstance(self.round, int):
                raise DataError(f"round must be an integer, not {self.round!r}", reason="wrong_type")
            if not isinstance(self.metadata, dict):
                raise DataError("metadata must be an object", reason="wrong_type")
            check_json(self.metadata, "metadata")
        except DataError as error:
            raise error.at(trace_id=self.id) from None
        self._check_order()

    def _check_order(self) -> None:
        if not self.turns:
            raise DataError("the trace has no turns", reason="empty_trace", trace_id=self.id)
        if not any(isinstance(turn, Step) for turn in self.turns):
            raise DataError("the trace has no step of the model", reason="no_steps", trace_id=self.id)
        last = self.turns[-1]
        if self.answer is not None:
            if not self.answer.strip():
                raise DataError("the answer is empty", reason="empty_answer", trace_id=self.id)
            if not isinstance(last, Step) or last.calls:
                raise DataError(
                    "an answer needs a last step without calls", reason="answer_misplaced", trace_id=self.id
                )
        for index, step in enumerate(self.steps):
            is_answer = step is last and self.answer is not None
            if not (step.calls or step.thought.strip() or step.raw_output is not None or is_answer):
                raise DataError(
                    "the step says nothing and calls nothing", reason="empty_step", trace_id=self.id, step=index
                )
            if step.unanswered and step.summary is None and step is not last:
                raise DataError(
                    f"call {step.unanswered[0]} ({step.calls[step.unanswered[0]].name}) has no result",
                    reason="call_without_result",
                    trace_id=self.id,
                    step=index,
                )
        names = [tool.name for tool in self.initial_tools]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"tool {twice} is declared twice", reason="duplicate_tool", trace_id=self.id)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the model, in order."""
        return tuple(turn for turn in self.turns if isinstance(turn, Step))

    @property
    def question(self) -> str:
        """The first user message, or "" where a trace begins without one."""
        return next((turn.content for turn in self.turns if isinstance(turn, UserMessage)), "")

    @property
    def is_complete(self) -> bool:
        """Ends in an answer, or is single-hop: one step, whose calls are what was asked for and got no result."""
        if self.answer is not None:
            return True
        first = self.steps[0]
        return len(self.steps) == 1 and bool(first.calls) and not first.results and first.summary is None

    def tools(self) -> Iterator[ToolSpec]:
        """Every tool of the trace, each name once, in order of appearance."""
        seen: set[str] = set()
        for spec in (*self.initial_tools, *(spec for step in self.steps for spec in step.tools_added)):
            if spec.name not in seen:
                seen.add(spec.name)
                yield spec


class DataKind(StrEnum):
    """Kinds of training data that may be mixed."""

    TRACE = "trace"
    SUMMARY = "summary"
    QA = "qa"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class StepExample:
    """One supervised sample: everything before step ``step_index`` is input, that step is the output.

    ``tools`` are the tools the step sees, in order; the wire format adds Finish and places Tool_RAG. In ``trace`` the
    ``tools_added`` of a step are those that it brought into view, each once and in this order (data.decompose).
    """

    trace: Trace
    step_index: int
    tools: tuple[ToolSpec, ...]
    weight: float = 1.0

    @property
    def id(self) -> str:
        return f"{self.trace.id}#{self.step_index}"

    @property
    def target(self) -> Step:
        """The step whose output is trained on."""
        return self.trace.steps[self.step_index]

    @property
    def history(self) -> tuple[Turn, ...]:
        """The turns before the target."""
        seen = 0
        for position, turn in enumerate(self.trace.turns):
            if isinstance(turn, Step):
                if seen == self.step_index:
                    return self.trace.turns[:position]
                seen += 1
        raise IndexError(self.step_index)

    @property
    def is_final(self) -> bool:
        """Whether the target gives the answer of the trace."""
        return self.trace.answer is not None and self.step_index == len(self.trace.steps) - 1

    @property
    def is_reply(self) -> bool:
        """Whether the target is text for the user other than the answer: no calls, and no step of the model next."""
        if self.target.calls or self.is_final:
            return False
        after = self.trace.turns[len(self.history) + 1 :]
        return not after or isinstance(after[0], UserMessage)


@dataclass(frozen=True, slots=True)
class RenderedExample:
    """A StepExample in tokens. ``loss_mask[t]`` is True where token t is trained on (the model's own output).

    Shapes: ``input_ids`` and ``loss_mask`` are both [T]. ``neutralised`` counts control strings found in text
    that is not ours, and made harmless; ``neutralised_in_target`` those of them that stand in the output.
    """

    id: str
    step_index: int
    input_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    weight: float = 1.0
    neutralised: int = 0
    neutralised_in_target: int = 0

    def __post_init__(self) -> None:
        assert len(self.input_ids) == len(self.loss_mask)
