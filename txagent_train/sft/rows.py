"""One trace becomes samples in tokens, each within the length limit, or the fault for which it is none.

Preparation and ``data check`` both go through here, so that they cannot judge a trace differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from txagent_train.config.sft import DataSection
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, RenderedExample, StepExample, Trace
from txagent_train.data.decompose import decompose
from txagent_train.data.overlong import Fitter, OverlongReport
from txagent_train.rendering.renderer import Renderer

_ALWAYS_DROPPED = ("step_without_call", "empty_output")
"""What no setting of a recipe could make a sample of; told apart from bad input, it is counted and not an error."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A step that is trained on: its tokens, or the fault that keeps it out.

    ``length`` is in tokens, 0 where the step has no words to render. ``stops`` says whether the fault stops a run (the
    sample is left out and counted otherwise).
    """

    example: StepExample
    rendered: RenderedExample | None
    fault: DataError | None = None
    length: int = 0
    stops: bool = False


class RowMaker:
    """Makes the samples of traces. ``overlong`` counts those over the limit, and what gave way so that they fit."""

    def __init__(self, data: DataSection, renderer: Renderer, seed: int) -> None:
        self._data = data
        self._renderer = renderer
        self._seed = seed
        self._fitter = Fitter(renderer.render, data.max_length)

    @property
    def overlong(self) -> OverlongReport:
        return self._fitter.report

    def samples(self, trace: Trace, *, epoch: int) -> Iterator[Sample]:
        """The samples of a trace, in the order of its steps."""
        for example in decompose(trace, seed=self._seed, epoch=epoch, shuffle_tools=self._data.shuffle_tools):
            yield self._sample(example)

    def _sample(self, example: StepExample) -> Sample:
        length = 0
        try:
            if self._data.overlong == "summarize":
                rendered, _ = self._fitter.fit(example)
                length = len(rendered.input_ids)
            else:
                rendered = self._renderer.render(example)
                length = len(rendered.input_ids)
                self._check_length(example, length)
            self._check_mask(example, rendered)
        except DataError as fault:
            is_overlong = fault.reason == "overlong"
            stops = self._data.overlong == "error" if is_overlong else fault.reason not in _ALWAYS_DROPPED
            return Sample(example, None, fault, length, stops)
        return Sample(example, rendered, None, length)

    def _check_length(self, example: StepExample, length: int) -> None:
        limit = self._data.max_length
        if length > limit:
            self.overlong.add_too_long(length)
            raise DataError(
                f"the sample has {length} tokens, over {limit}",
                reason="overlong",
                trace_id=example.trace.id,
                step=example.step_index,
                fix=f"set data.max_length={length} or more, or data.overlong=summarize",
            )

    @staticmethod
    def _check_mask(example: StepExample, rendered: RenderedExample) -> None:
        """Raise DataError where there is nothing to train on; a sample is never cut."""
        if not any(rendered.loss_mask):
            problem, reason = "the sample has no supervised token", "no_supervised_token"
        elif rendered.loss_mask[0]:
            problem, reason = "the first token is supervised, but nothing predicts it", "no_prompt"
        else:
            return
        raise DataError(problem, reason=reason, trace_id=example.trace.id, step=example.step_index)


@dataclass(slots=True)
class TooLong:
    """The samples of one file that are too long, where that is an error: all of them are told at once."""

    first: DataError | None = None
    count: int = 0
    longest: int = 0

    def add(self, fault: DataError, length: int) -> None:
        self.first = self.first or fault
        self.count += 1
        self.longest = max(self.longest, length)

    def merge(self, other: TooLong) -> None:
        """Add those of a later stretch of the file."""
        self.first = self.first or other.first
        self.count += other.count
        self.longest = max(self.longest, other.longest)

    def to_json(self) -> JsonObject:
        first = None if self.first is None else self.first.to_json()
        return {"first": first, "count": self.count, "longest": self.longest}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        first = value["first"]
        return cls(None if first is None else DataError.from_json(first), value["count"], value["longest"])

    def check(self) -> None:
        """Raise the first fault, with what all of them need; nothing where there is none."""
        first = self.first
        if first is None:
            return
        samples = "1 sample of the file is" if self.count == 1 else f"{self.count} samples of the file are"
        raise DataError(
            f"{first.problem}; {samples} too long, the longest has {self.longest}",
            reason=first.reason,
            path=first.path,
            line=first.line,
            trace_id=first.trace_id,
            step=first.step,
            fix=f"set data.max_length={self.longest} or more, or data.overlong=summarize, or data.overlong=drop",
        )
