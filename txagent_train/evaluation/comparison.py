"""Two models on the same items: the rates side by side, and whether the difference could be chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject
from txagent_train.scoring.intervals import PairedTest, Rate, mcnemar_exact, rate, rate_to_json


class Comparable(Protocol):
    """A result whose items are right or wrong."""

    def outcomes(self) -> Mapping[str, Mapping[str, bool]]:
        """Metric -> item id -> right."""
        ...


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One metric. In ``test`` the first system is the base."""

    metric: str
    base: Rate
    trained: Rate
    test: PairedTest

    def to_json(self) -> JsonObject:
        return {
            "metric": self.metric,
            "base": rate_to_json(self.base),
            "trained": rate_to_json(self.trained),
            "only_base": self.test.only_first,
            "only_trained": self.test.only_second,
            "p_value": self.test.p_value,
        }


def compare(base: Comparable, trained: Comparable) -> list[ComparisonRow]:
    """A row for each metric. The p value is that of McNemar's exact test on the paired items.

    Raises:
        DataError: the two results are not over the same metrics and items.
    """
    first, second = base.outcomes(), trained.outcomes()
    if first.keys() != second.keys():
        raise DataError(f"one result has {sorted(first)}, the other {sorted(second)}", reason="different_metrics")
    rows = []
    for metric, right in first.items():
        other = second[metric]
        if right.keys() != other.keys():
            unpaired = sorted(right.keys() ^ other.keys())
            raise DataError(
                f"{len(unpaired)} items are in one result only, the first is {unpaired[0]}",
                reason="different_items",
                fix="evaluate both models on the same data",
            )
        paired = [(right[key], other[key]) for key in right]
        before, after = [pair[0] for pair in paired], [pair[1] for pair in paired]
        rows.append(ComparisonRow(metric, rate(before), rate(after), mcnemar_exact(before, after)))
    return rows
