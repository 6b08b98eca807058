from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.tracking.sections import Curves, Point
from txagent_train.tracking.svg import legend, line_chart, nice_ticks

finite = st.floats(-1e30, 1e30)
values = finite | st.sampled_from([5e-324, 1e-199, 1e199, -1e199, 1e308, 0.0])


def chart(points: Sequence[Point], *, log_y: bool = False, wide: bool = False) -> tuple[str, list[str]]:
    return line_chart(Curves("h", {"train": tuple(points)}, "step", "loss", log_y=log_y, wide=wide))


def pixels(svg: str) -> list[tuple[float, float]]:
    lines = [element.attrib["points"].split() for element in ET.fromstring(svg).iter("polyline")]
    return [(float(x), float(y)) for line in lines for x, y in (pair.split(",") for pair in line)]


@given(st.lists(st.tuples(finite, values), min_size=1, max_size=40), st.booleans(), st.booleans())
def test_every_point_lies_inside_the_axes(points: list[Point], log_y: bool, wide: bool) -> None:
    svg, _ = chart(points, log_y=log_y, wide=wide)
    if "No values to draw" in svg:
        assert not any(1e-200 <= y <= 1e200 if log_y else abs(y) <= 1e200 for _, y in points)
        return
    _, _, width, height = map(float, ET.fromstring(svg).attrib["viewBox"].split())
    assert pixels(svg) and all(0 <= x <= width and 0 <= y <= height for x, y in pixels(svg))


@given(finite, st.floats(1e-6, 1e30), st.integers(1, 12))
def test_ticks_are_few_rising_and_inside(low: float, span: float, count: int) -> None:
    high = low + span
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return
    ticks = nice_ticks(low, high, count)
    assert len(ticks) <= 2 * count + 1
    assert ticks == sorted(ticks)
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in ticks)


def labels(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("text") if "class" not in element.attrib]


@pytest.mark.parametrize(
    ("points", "log_y", "expected"),
    [
        ([(1, 0.0), (3, 2.1e-4)], False, ["0", "0.5e-4", "1.0e-4", "1.5e-4", "2.0e-4", "1", "2", "3"]),
        ([(0, 1.0), (20000, 2.0)], False, ["1.0", "1.2", "1.4", "1.6", "1.8", "2.0", "0", "5k", "10k", "15k", "20k"]),
        ([(0, 0.1), (5, 1000.0)], True, ["0.1", "0.3", "1", "3", "10", "30", "100", "300", "1000", *"012345"]),
    ],
)
def test_labels(points: list[Point], log_y: bool, expected: list[str]) -> None:
    assert labels(chart(points, log_y=log_y)[0]) == expected


def test_a_value_that_is_not_finite_breaks_the_line_and_is_said() -> None:
    svg, notes = chart([(1, 1.0), (2, 2.0), (3, math.nan), (4, 1.0), (5, math.inf)])
    assert svg.count("<polyline") == 2
    assert notes == ["train: 2 of 5 values are not finite; the line is broken there."]


def test_a_log_axis_leaves_out_what_it_cannot_show_and_says_so() -> None:
    _, notes = chart([(1, 1.0), (2, 0.0)], log_y=True)
    assert notes == ["train: 1 of 2 values are not finite or not above 0; the line is broken there."]


def test_a_long_series_is_thinned_and_keeps_its_spikes() -> None:
    points = [(float(step), 1.0 + 0.001 * (step % 7)) for step in range(20_000)]
    points[12_345] = (12_345.0, 9.0)
    svg, notes = chart(points)
    assert len(pixels(svg)) <= 602
    assert "train: 9 at step 12345" in svg and "at step 19999" in svg
    assert len(notes) == 1 and "of 20,000 points are drawn" in notes[0]


def test_names_are_escaped() -> None:
    curves = Curves("<h>", {"<b>&": ((1, 1.0),), 'x"': ((1, 2.0),)}, "<x>", '"y"')
    svg, _ = line_chart(curves)
    ET.fromstring(svg)
    assert "<b>" not in svg + legend(curves.series)
