"""Teacher-forced evaluation of the next calls: the recorded history is given, only the next output is the model's.

It needs no tools to run, and every item is judged on the same history whatever the model did before. So it tells
two models apart with few items, and cheaply; whether the agent arrives is for evaluation.questions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, StepExample, StepStatus, ToolCall
from txagent_train.scoring.calls import CallScore, argument_f1, score_calls
from txagent_train.scoring.intervals import Rate, rate, rate_to_json

if TYPE_CHECKING:
    from txagent_train.agent.backends import Backend, Generation
    from txagent_train.rendering.renderer import Renderer


class Outcome(StrEnum):
    """What the model gave."""

    CALLS = "calls"
    ANSWER = "answer"
    UNPARSABLE = "unparsable"
    TOO_LONG = "too_long"
    """The prompt left no room in the model's context; nothing was generated, and the item counts as wrong."""


@dataclass(frozen=True, slots=True)
class NextCallItem:
    """One step: what was recorded, what the model gave. ``text`` is its output where that holds no calls.

    ``stopped`` is False where the output was cut at the token limit.
    """

    id: str
    step_index: int
    expected: tuple[ToolCall, ...]
    predicted: tuple[ToolCall, ...]
    score: CallScore
    outcome: Outcome
    text: str | None
    stopped: bool

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "step_index": self.step_index,
            "expected": [{"name": call.name, "arguments": call.arguments} for call in self.expected],
            "predicted": [{"name": call.name, "arguments": call.arguments} for call in self.predicted],
            "exact": self.score.exact,
            "names": self.score.names,
            "argument_f1": self.score.argument_f1,
            "outcome": str(self.outcome),
            "text": self.text,
            "stopped": self.stopped,
        }


@dataclass(frozen=True, slots=True)
class NextCallResult:
    """The items, in the order of the examples, and how many examples had no calls to predict (final steps)."""

    items: tuple[NextCallItem, ...]
    without_calls: int

    @property
    def exact(self) -> Rate:
        """Share of steps with exactly the recorded calls. The interval takes steps as independent."""
        return rate([item.score.exact for item in self.items])

    @property
    def names(self) -> Rate:
        """Share of steps that call the recorded tools, whatever the arguments."""
        return rate([item.score.names for item in self.items])

    @property
    def argument_f1(self) -> float:
        """Micro-averaged over all steps."""
        return argument_f1(item.score for item in self.items)

    def exact_by(self, group: Callable[[NextCallItem], int]) -> dict[int, Rate]:
        """The exact rate in each group, groups in order."""
        groups: defaultdict[int, list[bool]] = defaultdict(list)
        for item in self.items:
            groups[group(item)].append(item.score.exact)
        return {key: rate(groups[key]) for key in sorted(groups)}

    def outcomes(self) -> Mapping[str, Mapping[str, bool]]:
        """For each metric whether each item, by id, is right: what evaluation.comparison compares."""
        return {
            "next call exact": {item.id: item.score.exact for item in self.items},
            "next call tools": {item.id: item.score.names for item in self.items},
        }

    def to_json(self) -> JsonObject:
        """Figures and items; the groups are keyed by step index (from 0) and number of recorded calls."""
        by_step = self.exact_by(lambda item: item.step_index)
        by_calls = self.exact_by(lambda item: len(item.expected))
        return {
            "exact": rate_to_json(self.exact),
            "names": rate_to_json(self.names),
            "argument_f1": self.argument_f1,
            "exact_by_step": {str(key): rate_to_json(value) for key, value in by_step.items()},
            "exact_by_number_of_calls": {str(key): rate_to_json(value) for key, value in by_calls.items()},
            "outcomes": {str(kind): sum(item.outcome is kind for item in self.items) for kind in Outcome},
            "cut": sum(not item.stopped for item in self.items),
            "without_calls": self.without_calls,
            "items": [item.to_json() for item in self.items],
        }


def evaluate_next_calls(
    examples: Iterable[StepExample], *, renderer: Renderer, backend: Backend, max_new_tokens: int = 512
) -> NextCallResult:
    """Let the model write the output of every step that has calls, greedily, and score the calls.

    Raises:
        DataError: two examples have the same id.
    """
    examples = list(examples)
    targets = {example.id: example for example in examples if example.target.calls}
    without_calls = sum(not example.target.calls for example in examples)
    if len(targets) + without_calls != len(examples):
        raise DataError("two examples of the evaluation have the same id", reason="duplicate_id")
    prompts = {
        example.id: renderer.prompt_ids(
            trace_id=example.trace.id, system=example.trace.system, tools=example.tools, turns=example.history
        )
        for example in targets.values()
    }
    fitting = [key for key, ids in prompts.items() if len(ids) + max_new_tokens <= backend.context_length]
    generations = backend.generate([prompts[key] for key in fitting], max_new_tokens=max_new_tokens)
    given = dict(zip(fitting, generations, strict=True))
    items = tuple(_item(example, given.get(key), renderer) for key, example in targets.items())
    return NextCallResult(items, without_calls)


def _item(example: StepExample, generation: Generation | None, renderer: Renderer) -> NextCallItem:
    expected = example.target.calls
    predicted: tuple[ToolCall, ...] = ()
    text = None
    if generation is None:
        outcome = Outcome.TOO_LONG
    else:
        parsed = renderer.parse(generation.ids)
        predicted = parsed.step.calls
        if predicted:
            outcome = Outcome.CALLS
        else:
            outcome = Outcome.UNPARSABLE if parsed.step.status is StepStatus.UNPARSABLE else Outcome.ANSWER
            text = renderer.tokenizer.decode(list(generation.ids), skip_special_tokens=False)
    return NextCallItem(
        id=example.id,
        step_index=example.step_index,
        expected=expected,
        predicted=predicted,
        score=score_calls(expected, predicted),
        outcome=outcome,
        text=text,
        stopped=generation is None or generation.stopped,
    )
