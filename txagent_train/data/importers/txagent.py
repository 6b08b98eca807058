"""The format of TxAgent-Instruct and of TxAgent's own conversations.

    {"messages": [{"role": "system", "content": ..., "tools": '[{...}]'},
                  {"role": "user", "content": ...},
                  {"role": "assistant", "content": THOUGHT, "tool_calls": '[{"name", "arguments", "call_id"}]'},
                  {"role": "tool", "content": '{"content": ..., "call_id": ...}'}, ...]}

- ``tools`` and ``tool_calls`` are JSON texts, the text ``null``, null, or the values themselves; so may ``messages`` be
  (then also named ``conversation``), as exports to Parquet have them.
- ``tools`` stands on the system message. What is new in a list on a later message was added by the step before it
  whose Tool_RAG result names the tool, else by the last Tool_RAG step, else by the last step.
- The only tool message of a step, a text without wrapper, is the summary of all its results.
- An assistant message without calls that tool messages answer is an output that could not be parsed; so is one in
  mid-trace that holds the words of a call.
- A list of messages as the result of CallAgent is a trace of its own; what the agent read of it is its answer.
- A last message that begins as the agent's loop made it begin (step limit) is forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Json, JsonObject, StepStatus, ToolSpec, Trace
from txagent_train.data.importers.annotated import AnnotatedConversation, StepNote, as_call, messages_of, trace_of
from txagent_train.data.importers.values import parse_once, parse_tools, text_of
from txagent_train.data.importers.words import CALL_MARKERS
from txagent_train.data.strict_json import strict_loads
from txagent_train.data.toolspecs.tooluniverse_v0 import merged_required

CALL_AGENT = "CallAgent"
FORCED_BEGINNING = "Since I cannot continue reasoning, I will provide the final answer based on the current information"
"""What the loop begins the output with when it makes the model answer."""


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser. A record without id is named after its file and line."""
    return trace_of(record, _read, path=path, line=line)


def _read(record: JsonObject, trace_id: str) -> tuple[AnnotatedConversation, tuple[ToolSpec, ...]]:
    reader = _Reader(trace_id)
    return reader.conversation, reader.read(messages_of(record)) or once(read_tools(record.get("tools")))


def read_tools(value: object) -> tuple[ToolSpec, ...]:
    """Tool specs of ToolUniverse (``parameter``, ``required`` beside it or in each property), or of the OpenAI form.

    Raises:
        DataError: as ``parse_tools``.
    """
    if value is None or value == "":
        return ()
    value = parse_once(value, "tools", "tools_not_json")
    if not isinstance(value, list):
        return parse_tools(value)
    return tuple(spec for item in value for spec in _read_tool(item))


def _read_tool(item: Any) -> tuple[ToolSpec, ...]:
    if not isinstance(item, dict) or "parameter" not in item or "parameters" in item:
        return parse_tools([item])
    parameters = merged_required(item["parameter"], item)
    plain = {"name": item.get("name"), "description": item.get("description"), "parameters": parameters}
    return tuple(replace(spec, origin={"tooluniverse": item}) for spec in parse_tools([plain]))


def once(specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The specs without repetitions: the agent appends what Tool_RAG returns, also where it is in the list already."""
    return tuple(spec for place, spec in enumerate(specs) if spec not in specs[:place])


@dataclass
class _SeenStep:
    """A step as far as later messages need it: what it called, and the tools that its Tool_RAG calls named."""

    position: int
    note: StepNote
    calls: tuple[str, ...]
    found: set[str] = field(default_factory=set)


class _Reader:
    """Reads the messages of one conversation."""

    def __init__(self, trace_id: str) -> None:
        self.conversation = AnnotatedConversation()
        self._trace_id = trace_id
        self._initial: list[ToolSpec] = []
        self._steps: list[_SeenStep] = []

    def read(self, messages: Sequence[Any]) -> tuple[ToolSpec, ...]:
        """Read all of them; returns the initial tools.

        Raises:
            DataError: a message does not fit; names the step.
        """
        for position, message in enumerate(messages):
            with self.conversation.reading(position, message):
                if not isinstance(message, dict):
                    self.conversation.add(position, message)  # says what is wrong
                self._add(position, message, messages)
        return once(self._initial)

    def _add(self, position: int, message: JsonObject, messages: Sequence[Any]) -> None:
        fields = {key: value for key, value in message.items() if key not in ("tools", "tool_calls")}
        calls = message.get("tool_calls")
        calls = None if calls in (None, "") else parse_once(calls, "tool_calls", "calls_not_json")
        if message.get("role") == "assistant":
            self._add_step(position, fields, [calls] if isinstance(calls, dict) else calls, messages)
        elif message.get("role") == "tool":
            self._add_result(position, fields, is_only=_answers(messages, position - 1) == 1)
        else:
            self.conversation.add(position, {**fields, "tool_calls": calls})
        self._add_tools(position, read_tools(message.get("tools")))

    def _add_step(self, position: int, fields: JsonObject, calls: Any, messages: Sequence[Any]) -> None:
        content = text_of(fields.get("content"))
        following = messages[position + 1 :]
        answers = _answers(messages, position)
        if not calls and (answers or (following and any(marker in content for marker in CALL_MARKERS))):
            note = self.conversation.add_unparsable(position, fields, content, answers)
            self._steps.append(_SeenStep(position, note, ()))
            return
        listed = list(map(as_call, calls)) if isinstance(calls, list) else calls
        ends_turn = bool(following) and isinstance(following[0], dict) and following[0].get("role") == "user"
        note = self.conversation.add_step(position, {**fields, "tool_calls": listed}, ends_turn=ends_turn)
        if content.lstrip().startswith(FORCED_BEGINNING):
            note.status = StepStatus.FORCED
        names = tuple(call["function"]["name"] for call in listed or ())  # the reader has checked them
        self._steps.append(_SeenStep(position, note, names))

    def _add_result(self, position: int, fields: JsonObject, *, is_only: bool) -> None:
        content, call_id, wrapped = _unwrap(fields.pop("content", None), fields.pop("tool_call_id", None))
        sub_trace: Trace | None = None
        step = self._steps[-1] if self._steps else None
        if step is not None and step.calls:
            if not wrapped and is_only and isinstance(content, str):
                step.note.summary = content
            if CALL_AGENT in step.calls and _is_messages(content):
                sub_trace = self._sub_trace(content, len(step.note.results))
                content = content if sub_trace.answer is None else sub_trace.answer
            if TOOL_RAG in step.calls and isinstance(content, list):
                step.found.update(name for name in content if isinstance(name, str))
        self.conversation.add_result(position, content, fields, call_id=call_id, sub_trace=sub_trace)

    def _sub_trace(self, messages: Any, place: int) -> Trace:
        """What a nested agent did, as a trace of its own."""
        name = f"{self._trace_id}/{len(self._steps) - 1}.{place}"
        return trace_of({"messages": messages, "id": name}, _read, path=Path(name), line=0)

    def _add_tools(self, position: int, specs: Sequence[ToolSpec]) -> None:
        before = [step for step in self._steps if step.position < position]
        if not before:
            self._initial.extend(specs)
            return
        known = [*self._initial, *(spec for step in self._steps for spec in step.note.tools_added)]
        searches = [step for step in before if TOOL_RAG in step.calls]
        for spec in once(specs):
            if spec not in known:
                named = [step for step in searches if spec.name in step.found]
                (named or searches or before)[-1].note.tools_added.append(spec)


def _answers(messages: Sequence[Any], position: int) -> int:
    """How many tool messages stand in the run behind ``position``, which may be inside the run."""
    while position >= 0 and isinstance(messages[position], dict) and messages[position].get("role") == "tool":
        position -= 1
    count = 0
    for message in messages[position + 1 :]:
        if not isinstance(message, dict) or message.get("role") != "tool":
            break
        count += 1
    return count


def _unwrap(content: Any, call_id: Any) -> tuple[Json, Any, bool]:
    """What a tool message says, the id of its call, and whether it stood in the wrapper of a single result."""
    value = content
    if isinstance(content, str) and content.lstrip().startswith("{"):
        try:
            value = strict_loads(content)
        except ValueError as error:
            if '"content"' in content.partition(":")[0]:
                problem = f"the result is a text that is not JSON: {error}"
                raise DataError(problem, reason="result_not_json") from None
    if isinstance(value, dict) and "content" in value and value.keys() <= {"content", "call_id"}:
        return value["content"], value.get("call_id") or call_id, True
    return (content if isinstance(content, dict) else text_of(content)), call_id, call_id is not None


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and "role" in item for item in value)
