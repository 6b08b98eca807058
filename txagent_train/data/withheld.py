"""Tools that training must not show: traces that use one are left out, and in the others they are not there.

"Use" is a call, or the tool's name in what the model wrote. A tool that is only offered is taken out of the lists of
tools and out of what Tool_RAG returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Json, Step, ToolResult, ToolSpec, Trace
from txagent_train.data.mentions import is_identifier, joined, own_texts, strings

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Withheld:
    """Names of tools; ``reason`` is what traces that use one are counted by, ``why`` says it in words."""

    names: frozenset[str]
    reason: str
    why: str

    def check(self, trace: Trace) -> None:
        """Raise DataError where a trace uses one of the tools."""
        if not self.names:
            return
        for index, step in enumerate(trace.steps):
            called = next((call.name for call in step.calls if call.name in self.names), None)
            said = [*own_texts(step), trace.answer or ""] if index == len(trace.steps) - 1 else own_texts(step)
            name = called or self._named(joined(said))
            if name is not None:
                problem = f"the trace uses {name}, {self.why}"
                raise DataError(problem, reason=self.reason, trace_id=trace.id, step=index)

    def _named(self, text: str) -> str | None:
        found = sorted(self.names.intersection(_WORD.findall(text)))
        return next((name for name in found if is_identifier(name)), None)

    def hide(self, trace: Trace) -> Trace:
        """The trace without these tools among those that it shows."""
        if not self.names or not self._shows(trace):
            return trace
        turns = tuple(self._step(turn) if isinstance(turn, Step) else turn for turn in trace.turns)
        return replace(trace, initial_tools=self._rest(trace.initial_tools), turns=turns)

    def count(self, trace: Trace) -> int:
        """How many of the tools of a trace are withheld."""
        return sum(spec.name in self.names for spec in trace.tools())

    def _shows(self, trace: Trace) -> bool:
        if any(spec.name in self.names for spec in trace.tools()):
            return True
        retrieved = (result for step in trace.steps for result in step.results if _is_retrieved(step, result))
        return any(not self.names.isdisjoint(strings(result.content)) for result in retrieved)

    def _rest(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in specs if spec.name not in self.names)

    def _step(self, step: Step) -> Step:
        results = tuple(
            replace(result, content=self._without(result.content)) if _is_retrieved(step, result) else result
            for result in step.results
        )
        return replace(step, results=results, tools_added=self._rest(step.tools_added))

    def _without(self, value: Json) -> Json:
        """What Tool_RAG returned, less every entry of a list or object that is one of the tools."""
        if isinstance(value, list):
            return [self._without(item) for item in value if not self._is_tool(item)]
        if isinstance(value, dict):
            return {key: self._without(item) for key, item in value.items() if key not in self.names}
        return value

    def _is_tool(self, value: Json) -> bool:
        if isinstance(value, str):
            return value in self.names
        if not isinstance(value, dict):
            return False
        name = value.get("name")
        return (isinstance(name, str) and name in self.names) or self._is_tool(value.get("function"))


def _is_retrieved(step: Step, result: ToolResult) -> bool:
    return result.call_index is not None and step.calls[result.call_index].name == TOOL_RAG
