"""How well the predicted calls of one step match the recorded ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from txagent_train.core.records import Json, ToolCall


@dataclass(frozen=True, slots=True)
class CallScore:
    """The score of one step.

    ``exact``: the same calls with the same arguments. ``names``: the same tools, each as often. The three counts
    are over (tool, argument, value) and can be summed over steps for a micro-averaged F1.
    """

    exact: bool
    names: bool
    matched_arguments: int
    expected_arguments: int
    predicted_arguments: int

    @property
    def argument_f1(self) -> float:
        """F1 of this step's arguments; see argument_f1."""
        return argument_f1((self,))


def canonical_json(value: Json) -> str:
    """A text that is equal for equal JSON only: key order is ignored, types are not (1, 1.0, true, "1" differ)."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def score_calls(expected: Sequence[ToolCall], predicted: Sequence[ToolCall]) -> CallScore:
    """Compare two sets of parallel calls. Their order does not matter, repeated calls do."""
    wanted, given = _arguments(expected), _arguments(predicted)
    return CallScore(
        exact=_whole(expected) == _whole(predicted),
        names=Counter(call.name for call in expected) == Counter(call.name for call in predicted),
        matched_arguments=(wanted & given).total(),
        expected_arguments=wanted.total(),
        predicted_arguments=given.total(),
    )


def argument_f1(scores: Iterable[CallScore]) -> float:
    """Micro-averaged F1 = 2 * matched / (expected + predicted); 1.0 where neither side has an argument."""
    matched = total = 0
    for score in scores:
        matched += score.matched_arguments
        total += score.expected_arguments + score.predicted_arguments
    return 2 * matched / total if total else 1.0


def _whole(calls: Sequence[ToolCall]) -> Counter[tuple[str, str]]:
    return Counter((call.name, canonical_json(call.arguments)) for call in calls)


def _arguments(calls: Sequence[ToolCall]) -> Counter[tuple[str, str, str]]:
    return Counter((call.name, key, canonical_json(value)) for call in calls for key, value in call.arguments.items())
