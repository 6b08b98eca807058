"""How sure a measured rate is, and whether two systems differ on the same items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist

from txagent_train.core.records import JsonObject


@dataclass(frozen=True, slots=True)
class Rate:
    """``successes`` of ``total`` items, with the bounds of its Wilson interval. ``value`` is None for no items."""

    successes: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        return self.successes / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two systems on the same items. ``p_value`` is that of McNemar's exact test, two-sided."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float


def wilson_interval(successes: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson, JASA 1927), in [0, 1]; (0, 1) for no items.

    Unlike the normal approximation it stays inside [0, 1] and has a width at 0 and at ``total`` successes.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / total
    scale = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    half = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / scale
    # At the ends the exact bounds are 0 and 1; rounding would leave them a hair beside.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == total else centre + half
    return low, high


def rate(outcomes: Sequence[bool], confidence: float = 0.95) -> Rate:
    """The share of True, with its Wilson interval."""
    successes = sum(outcomes)
    return Rate(successes, len(outcomes), *wilson_interval(successes, len(outcomes), confidence))


def rate_to_json(value: Rate) -> JsonObject:
    """The rate as it stands in reports: value (null for no items), successes, total, low, high."""
    return {
        "value": value.value,
        "successes": value.successes,
        "total": value.total,
        "low": value.low,
        "high": value.high,
    }


def mcnemar_exact(first: Sequence[bool], second: Sequence[bool]) -> PairedTest:
    """McNemar's exact test (a sign test on the items where the two differ; McNemar 1947, exact binomial form).

    Args:
        first, second: whether each item was right, in the same order of items.
    """
    pairs = list(zip(first, second, strict=True))
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    both = sum(a and b for a, b in pairs)
    differing = only_first + only_second
    # Under the null hypothesis only_first ~ Binomial(differing, 1/2). Integers keep the sum exact at any size.
    tail = sum(comb(differing, k) for k in range(min(only_first, only_second) + 1))
    p_value = min(1.0, 2 * tail / 2**differing)
    return PairedTest(both, only_first, only_second, len(pairs) - both - differing, p_value)
