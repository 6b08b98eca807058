"""Samples over the length limit: the results of the earliest steps give way to summaries, until the sample fits.

Paper 4.1: long tool results are replaced by summaries, the earliest step first. What is never touched: the question,
the tools, what the model wrote, the results that the target answers to (those of the last step before it), what
Tool_RAG returned, results that are nothing but errors, and results whose summary would not be shorter.

A summary comes from where there is one, in this order:

1. ``Step.summary``, which the teacher recorded: it is always used, whatever the length (rendering.messages).
2. ``metadata["summaries"]`` of the trace: an object from the number of a step, as text, to its summary.
3. ``extract``: the words of the result itself that say most about the question, the thought and the call, and about
   what the next step made of it. That step is in every sample in which the result gives way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import (
    TOOL_RAG,
    Json,
    JsonObject,
    RenderedExample,
    Step,
    StepExample,
    Trace,
    Turn,
    UserMessage,
)
from txagent_train.data.extract import extract

SUMMARIES = "summaries"
"""The key of a trace's metadata that holds stored summaries."""

Render: TypeAlias = Callable[[StepExample], RenderedExample]


@dataclass(frozen=True, slots=True)
class Summarized:
    """What it took to make a sample fit. Lengths are in tokens.

    ``steps`` are the numbers of the steps whose results are summaries in this sample; ``new`` those of them that were
    not already so in an earlier sample of the trace.
    """

    steps: tuple[int, ...]
    new: tuple[int, ...]
    before: int
    after: int


@dataclass(slots=True)
class OverlongReport:
    """Samples over the limit and what became of them.

    ``lengths`` counts them by length before, in tokens: the key is the upper bound of a bucket, a power of two.
    ``longest`` is the limit, in tokens, with which none had been left out. ``steps`` counts each step of a trace once,
    ``tokens_saved`` is over all samples.
    """

    summarized: int = 0
    too_long: int = 0
    longest: int = 0
    steps: int = 0
    tokens_saved: int = 0
    lengths: Counter[int] = field(default_factory=Counter)

    def add(self, made: Summarized) -> None:
        """Count a sample that was made to fit."""
        self.summarized += 1
        self.steps += len(made.new)
        self.tokens_saved += made.before - made.after
        self.lengths[bucket(made.before)] += 1

    def add_too_long(self, length: int, shortest: int | None = None) -> None:
        """Count a sample of this length that could not be made to fit; ``shortest`` is its length with summaries."""
        self.too_long += 1
        self.longest = max(self.longest, length if shortest is None else shortest)
        self.lengths[bucket(length)] += 1

    def to_json(self) -> JsonObject:
        return {
            "summarized": self.summarized,
            "too_long": self.too_long,
            "longest": self.longest,
            "steps": self.steps,
            "tokens_saved": self.tokens_saved,
            "lengths": {str(bound): count for bound, count in sorted(self.lengths.items())},
        }


def bucket(length: int) -> int:
    """The smallest power of two that is not below a length."""
    return 1 << max(length - 1, 0).bit_length()


class Fitter:
    """Renders the samples of traces so that each fits; give it those of a trace in the order of its steps.

    A step that gave way in one sample of a trace stays summarised in the later ones, so that later samples keep the
    earlier ones as their prefix. It also makes the work linear: over a whole trace there is one rendering a sample, and
    one more for each step that gives way. ``report`` counts what was done.
    """

    def __init__(self, render: Render, limit: int) -> None:
        self.report = OverlongReport()
        self._render = render
        self._limit = limit
        self._of: Trace | None = None  # the trace whose samples come, as it was given
        self._trace: Trace | None = None  # the same with summaries
        self._last = -1
        self._tried = 0
        self._saved: dict[int, int] = {}  # tokens, by number of the step

    def fit(self, example: StepExample) -> tuple[RenderedExample, Summarized | None]:
        """The sample in tokens, and what was summarised for it (None where nothing was).

        Raises:
            DataError: it does not fit whatever is summarised (reason ``overlong``), the stored summaries are no texts
                by step, or the renderer has no words for the target.
        """
        if self._trace is None or self._of is not example.trace or example.step_index <= self._last:
            self._of = self._trace = example.trace
            self._tried, self._saved = 0, {}
        self._last = example.step_index
        rendered = self._render(replace(example, trace=self._trace))
        new: list[int] = []
        for index in self._next(example.step_index):
            if len(rendered.input_ids) <= self._limit:
                break
            trace = _with_summary(self._trace, index)
            self._tried = index + 1
            shorter = self._render(replace(example, trace=trace)) if trace else rendered
            saved = len(rendered.input_ids) - len(shorter.input_ids)
            if trace is not None and saved > 0:
                self._trace, rendered = trace, shorter
                self._saved[index] = saved
                new.append(index)
        after = len(rendered.input_ids)
        before = after + sum(self._saved.values())
        if after > self._limit:
            self.report.add_too_long(before, after)
            raise self._too_long(example, before, after)
        if not self._saved:
            return rendered, None
        made = Summarized(tuple(self._saved), tuple(new), before, after)
        self.report.add(made)
        return rendered, made

    def _too_long(self, example: StepExample, before: int, after: int) -> DataError:
        summarized = f", and still {after} with summaries of the results that may give way" if after < before else ""
        return DataError(
            f"the sample has {before} tokens, over {self._limit}{summarized}",
            reason="overlong",
            trace_id=example.trace.id,
            step=example.step_index,
            fix=f"set data.max_length={after} or more",
        )

    def _next(self, target: int) -> Iterator[int]:
        """The steps that may give way in the sample of a target and were not tried, earliest first."""
        yield from range(self._tried, target - 1)  # not the one right before the target: the target answers to it


def _with_summary(trace: Trace, index: int) -> Trace | None:
    """The trace with the results of a step replaced by a summary; None where they must stay, or it is not shorter."""
    position = [place for place, turn in enumerate(trace.turns) if isinstance(turn, Step)][index]
    before, step, after = trace.turns[:position], trace.steps[index], trace.steps[index + 1]
    if step.summary is not None or not _may_give_way(step):
        return None
    summary = _stored(trace).get(str(index)) or _extracted(before, step, after)
    if not summary.strip() or len(summary) >= sum(len(_whole(result.content)) for result in step.results):
        return None
    return replace(trace, turns=(*before, replace(step, summary=summary), *trace.turns[position + 1 :]))


def _may_give_way(step: Step) -> bool:
    if step.tools_added or any(call.name == TOOL_RAG for call in step.calls):
        return False
    return not all(result.is_error for result in step.results)


def _stored(trace: Trace) -> Mapping[str, str]:
    stored = trace.metadata.get(SUMMARIES, {})
    if not isinstance(stored, dict) or not all(isinstance(text, str) for text in stored.values()):
        problem = f"metadata.{SUMMARIES} must be an object from the number of a step to its summary"
        raise DataError(problem, reason="invalid_summaries", trace_id=trace.id)
    return stored


def _extracted(before: Sequence[Turn], step: Step, after: Step) -> str:
    """One line for each result: the name of its call where there are several, and what it says. Errors stay whole."""
    asked = [turn.content for turn in before if isinstance(turn, UserMessage)]  # not what was asked only later
    used = " ".join([after.thought, *(str(call.arguments) for call in after.calls)])
    lines = []
    for result in step.results:
        call = None if result.call_index is None else step.calls[result.call_index]
        about = " ".join([*asked, step.thought, *([call.name, str(call.arguments)] if call else [])])
        text = _whole(result.content) if result.is_error else extract(result.content, about, used)
        if text:
            lines.append(f"{call.name}: {text}" if call and len(step.results) > 1 else text)
    return "\n".join(lines)


def _whole(content: Json) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
