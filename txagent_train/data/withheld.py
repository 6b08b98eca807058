"""Tools that training must not show: traces that use or name one are left out, and in the others they are not there.

What a trace only offers is taken out of it: the tools themselves in the lists of tools and in what Tool_RAG and error
messages list, in any form (data.toollists), and tools whose specs name one, where nobody calls them. A trace that names
one all the same, anywhere where the model reads or writes, is left out like one that calls it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import Json, Step, ToolSpec, Trace
from txagent_train.data.mentions import Names, is_about_tools, joined, prompt_texts, reads_alike, spec_text, strings
from txagent_train.data.overlong import SUMMARIES
from txagent_train.data.toollists import without


@dataclass(frozen=True, slots=True)
class Withheld:
    """Names of tools; ``reason`` is what traces that use one are counted by, ``why`` says it in words.

    Letter case makes no difference.
    """

    names: frozenset[str]
    reason: str
    why: str
    _folded: frozenset[str] = field(init=False, repr=False, compare=False)
    _finder: Names = field(init=False, repr=False, compare=False)
    _naming: dict[str, tuple[ToolSpec, bool]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", frozenset(name.casefold() for name in self.names))
        object.__setattr__(self, "_finder", Names(self.names))

    def has(self, name: str) -> bool:
        """Whether the tool of this name is one of them."""
        return name.casefold() in self._folded

    def is_named_by(self, spec: ToolSpec) -> bool:
        """Whether a tool is one of them, or says the name of one."""
        if not self.names:
            return False
        known = self._naming.get(spec.name)
        if known is not None and reads_alike(known[0], spec):
            return known[1]
        named = self.has(spec.name) or self._finder.first(spec_text(spec)) is not None
        self._naming[spec.name] = spec, named
        return named

    def check(self, trace: Trace, *, words: bool = True) -> None:
        """Raise DataError where a trace in which the tools are hidden (see ``hide``) calls or names one still.

        Args:
            words: names that may be ordinary words count, where they stand as a tool.
        """
        if not self.names:
            return
        for index, step in enumerate(trace.steps):
            for call in step.calls:
                if self.has(call.name):
                    raise self._fault(trace, f"uses {call.name}", index)
        parts = list(_read_and_written(trace))
        naming = next((spec for spec in trace.tools() if self.is_named_by(spec)), None)
        if naming is not None:
            name = self._finder.first(joined((naming.name, spec_text(naming)))) or naming.name
            raise self._fault(trace, f"shows {name} in the tool {naming.name}", None)
        if self._finder.first(joined(text for _, text in parts), words=words) is not None:
            found = ((self._finder.first(text, words=words), place) for place, text in parts)
            name, where = next((name, place) for name, place in found if name is not None)
            raise self._fault(trace, f"names {name}", where)

    def _fault(self, trace: Trace, problem: str, step: int | None) -> DataError:
        return DataError(f"the trace {problem}, {self.why}", reason=self.reason, trace_id=trace.id, step=step)

    def hide(self, trace: Trace) -> Trace:
        """The trace without these tools, and without tools that name one and are not called."""
        if not self.names:
            return trace
        called = {call.name for step in trace.steps for call in step.calls}
        gone = {spec.name for spec in trace.tools() if spec.name not in called and self.is_named_by(spec)}
        changed: dict[int, Step] = {}
        for place, turn in enumerate(trace.turns):
            if isinstance(turn, Step) and (new := self._without(turn, gone)) is not turn:
                changed[place] = new
        initial = tuple(spec for spec in trace.initial_tools if spec.name not in gone and not self.has(spec.name))
        if not changed and len(initial) == len(trace.initial_tools):
            return trace
        turns = tuple(changed.get(place, turn) for place, turn in enumerate(trace.turns))
        return replace(trace, initial_tools=initial, turns=turns)

    def _without(self, step: Step, gone: set[str]) -> Step:
        results = tuple(
            replace(result, content=self._rest(result.content, gone)) if is_about_tools(step, result) else result
            for result in step.results
        )
        added = tuple(spec for spec in step.tools_added if spec.name not in gone and not self.has(spec.name))
        unchanged = all(new.content is old.content for new, old in zip(results, step.results, strict=True))
        if unchanged and len(added) == len(step.tools_added):
            return step
        return replace(step, results=results, tools_added=added)

    def _rest(self, content: Json, gone: set[str]) -> Json:
        if not gone and not self._finder.may_be_in(_written(content)):
            return content
        rest: Json = without(content, lambda name: name in gone or self.has(name))
        return content if rest == content else rest


def _written(content: Json) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _read_and_written(trace: Trace) -> Iterator[tuple[int | None, str]]:
    """All but the tools that the model reads or writes of a trace, each with the number of its step."""
    yield from ((None, text) for text in (*prompt_texts(trace), *strings(trace.metadata.get(SUMMARIES))))
    for index, step in enumerate(trace.steps):
        for text in (step.thought, step.reasoning, step.raw_output, step.summary):
            if text:
                yield index, text
        yield from ((index, f"{call.name} {_written(call.arguments)}") for call in step.calls)
        if step.summary is None:  # it stands in for the results
            yield from ((index, _written(result.content)) for result in step.results)
    if trace.answer is not None:
        yield len(trace.steps) - 1, trace.answer
