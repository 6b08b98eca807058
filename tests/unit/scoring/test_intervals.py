from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.scoring.intervals import mcnemar_exact, rate, wilson_interval


def test_wilson_against_published_values() -> None:
    # Newcombe, Statistics in Medicine 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for successes, total, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert wilson_interval(successes, total) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500), st.integers(0, 500), st.floats(0.5, 0.999))
def test_wilson_holds_the_rate(a: int, b: int, confidence: float) -> None:
    low, high = wilson_interval(a, a + b, confidence)
    assert 0 <= low <= high <= 1
    if a + b:
        assert low <= a / (a + b) <= high


def test_wilson_refuses_impossible_counts() -> None:
    with pytest.raises(ValueError):
        wilson_interval(3, 2)
    with pytest.raises(ValueError):
        wilson_interval(1, 2, confidence=95)


def test_rate_of_nothing_has_no_value() -> None:
    assert rate([]).value is None and (rate([]).low, rate([]).high) == (0.0, 1.0)
    assert rate([True, False]).value == 0.5


def test_mcnemar_counts_and_p_value() -> None:
    first = [True] * 3 + [False] * 10 + [True] * 5 + [False]
    second = [False] * 3 + [True] * 10 + [True] * 5 + [False]
    test = mcnemar_exact(first, second)
    assert (test.both, test.only_first, test.only_second, test.neither) == (5, 3, 10, 1)
    assert test.p_value == pytest.approx(2 * sum(comb(13, k) for k in range(4)) / 2**13)  # 0.0923
    assert mcnemar_exact(second, first).p_value == test.p_value


def test_mcnemar_without_a_difference() -> None:
    assert mcnemar_exact([True, False], [True, False]).p_value == 1.0
    assert mcnemar_exact([True, False], [False, True]).p_value == 1.0
    assert mcnemar_exact([], []).p_value == 1.0


def test_mcnemar_needs_the_same_items_and_bears_many() -> None:
    with pytest.raises(ValueError):
        mcnemar_exact([True], [True, False])
    assert mcnemar_exact([False] * 5000, [True] * 5000).p_value < 1e-300
