"""Other names for the tools of a trace, everywhere in it, and the way back.

    initial_tools, tools_added      the rewritten spec, and mentions of other tools in its descriptions
    calls                           the name, and the names of the arguments
    results about tools             names and specs in any form (data.toollists), mentions in text
    results of ordinary tools       a text that is a name as a whole; never a word of a longer text
    thought, reasoning, summary, raw_output, answer     mentions (data.mentions)

What the user, the system prompt and the tools say is left as it is: data.versions renames no tool that is named there.
Nested traces (ToolResult.sub_trace) are left too, for they are never shown to the model.

The way back gives the same trace; only a text that holds JSON may come back with other white space and escapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from txagent_train.core.records import Json, JsonObject, Step, ToolCall, ToolResult, ToolSpec, Trace
from txagent_train.data.mentions import SPECIAL_TOOLS, Word, is_about_tools, replace_words
from txagent_train.data.overlong import SUMMARIES
from txagent_train.data.toollists import SCHEMA_KEYS, name_of, unpacked


@dataclass(frozen=True, slots=True)
class Change:
    """One tool as it was and as it becomes; ``arguments`` are the names of its arguments, old to new.

    Also of a tool that keeps its name, where its spec says other things, or mentions a tool that is renamed.
    """

    old: ToolSpec
    new: ToolSpec
    arguments: Mapping[str, str]

    def arguments_of(self, call: ToolCall) -> JsonObject:
        """The arguments of a call under their new names."""
        return {self.arguments.get(name, name): value for name, value in call.arguments.items()}

    @property
    def inverse(self) -> Change:
        return Change(self.new, self.old, {new: old for old, new in self.arguments.items()})


@dataclass(frozen=True, slots=True)
class Renaming:
    """Changes by old name of the tool, and what mentions become.

    Whoever makes one sees to it that the way back is open: no new name is in the trace before (data.versions).
    """

    changes: Mapping[str, Change] = field(default_factory=dict)
    words: Mapping[str, Word] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """Old name to new name, of the tools whose name changes."""
        return {old: change.new.name for old, change in self.changes.items() if change.new.name != old}

    @property
    def inverse(self) -> Renaming:
        """The renaming that undoes this one."""
        return Renaming(
            {change.new.name: change.inverse for change in self.changes.values()},
            # No new name was there before, so each is one that was put there.
            {word.new: Word(old, quoted=False) for old, word in self.words.items()},
        )

    def apply(self, trace: Trace, counts: Counter[str] | None = None) -> Trace:
        """The trace under the new names; adds ``mentions_renamed`` to ``counts``."""
        if not self.changes:
            return trace
        return _Pass(self, Counter() if counts is None else counts).trace(trace)


class _Pass:
    """One walk over a trace."""

    def __init__(self, renaming: Renaming, counts: Counter[str]) -> None:
        self._changes = renaming.changes
        self._words = renaming.words
        self._names = renaming.names
        # A word of everyday language that a tool answers with need not be the tool of that name.
        self._sure = {old: new for old, new in self._names.items() if not renaming.words[old].quoted}
        self._counts = counts

    def trace(self, trace: Trace) -> Trace:
        metadata = trace.metadata
        if isinstance(summaries := metadata.get(SUMMARIES), dict):
            renamed = {key: self._text(text) if isinstance(text, str) else text for key, text in summaries.items()}
            metadata = metadata | {SUMMARIES: renamed}
        return replace(
            trace,
            initial_tools=tuple(self._spec(spec) for spec in trace.initial_tools),
            turns=tuple(self._step(turn) if isinstance(turn, Step) else turn for turn in trace.turns),
            answer=None if trace.answer is None else self._text(trace.answer),
            metadata=metadata,
        )

    def _step(self, step: Step) -> Step:
        new: dict[str, Any] = {
            "thought": self._text(step.thought),
            "reasoning": self._text(step.reasoning),
            "calls": tuple(self._call(call) for call in step.calls),
            "results": tuple(self._result(step, result) for result in step.results),
            "tools_added": tuple(self._spec(spec) for spec in step.tools_added),
            "summary": None if step.summary is None else self._text(step.summary),
            "raw_output": None if step.raw_output is None else self._text(step.raw_output),
        }
        return replace(step, **new)

    def _spec(self, spec: ToolSpec) -> ToolSpec:
        change = self._changes.get(spec.name)
        return spec if change is None else change.new

    def _call(self, call: ToolCall) -> ToolCall:
        if call.name in SPECIAL_TOOLS:
            return ToolCall(call.name, told(call.arguments, self._words))
        change = self._changes.get(call.name)
        if change is None:
            return call
        return ToolCall(change.new.name, change.arguments_of(call))

    def _result(self, step: Step, result: ToolResult) -> ToolResult:
        about_tools = is_about_tools(step, result)
        content = self._about_tools(result.content) if about_tools else _whole(result.content, self._sure)
        return result if content == result.content else replace(result, content=content)

    def _about_tools(self, value: Any) -> Any:
        """A value in which any text may be or mention a name, or hold such a value as text."""
        if isinstance(value, str):
            packed = unpacked(value)
            if packed is None:
                return self._named(value)
            new = self._about_tools(packed.value)
            return value if new == packed.value else packed.pack(new)
        if isinstance(value, (list, tuple)):
            return type(value)(self._about_tools(item) for item in value)
        if not isinstance(value, dict):
            return value
        change = self._changes.get(name_of(value) or "")
        if change is not None:
            return {key: self._of_spec(key, item, change) for key, item in value.items()}
        return {self._named(key): self._about_tools(item) for key, item in value.items()}

    def _of_spec(self, key: str, value: Any, change: Change) -> Any:
        """One field of a spec that stands in a result."""
        if key == "description" and value == change.old.description:
            return change.new.description
        if key in SCHEMA_KEYS and isinstance(value, dict):
            return change.new.parameters if value == change.old.parameters else _schema(value, change)
        return self._about_tools(value)

    def _named(self, text: str) -> str:
        return self._names.get(text) or self._text(text, listed=True)

    def _text(self, text: str, *, listed: bool = False) -> str:
        new, count = replace_words(text, self._words, listed=listed)
        if count:
            self._counts["mentions_renamed"] += count
        return new


def told(value: Any, words: Mapping[str, Word]) -> Any:
    """A JSON value with the words replaced that its texts mention."""
    if isinstance(value, str):
        return replace_words(value, words)[0]
    if isinstance(value, list):
        return [told(item, words) for item in value]
    return {key: told(item, words) for key, item in value.items()} if isinstance(value, dict) else value


def _whole(value: Json, names: Mapping[str, str]) -> Json:
    """A JSON value with the texts and keys that are a name as a whole replaced."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [_whole(item, names) for item in value]
    if isinstance(value, dict):
        return {names.get(key, key): _whole(item, names) for key, item in value.items()}
    return value


def _schema(schema: JsonObject, change: Change) -> JsonObject:
    """The parameters of a spec in another form than the tool's own, with the arguments renamed."""
    properties, required = schema.get("properties"), schema.get("required")
    out = dict(schema)
    if isinstance(properties, dict):
        out["properties"] = {
            change.arguments.get(name, name): _property(item, name, change) for name, item in properties.items()
        }
    if isinstance(required, list):
        out["required"] = [change.arguments.get(name, name) if isinstance(name, str) else name for name in required]
    return out


def _property(value: Json, name: str, change: Change) -> Json:
    old, new = (
        (spec.parameters.get("properties") or {}).get(key)
        for spec, key in ((change.old, name), (change.new, change.arguments.get(name, name)))
    )
    if not (isinstance(value, dict) and isinstance(old, dict) and isinstance(new, dict)):
        return value
    if "description" in value and "description" in new and value["description"] == old.get("description"):
        return value | {"description": new["description"]}
    return value
