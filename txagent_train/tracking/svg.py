"""Line charts as inline SVG: axes, ticks, and a value under the pointer; colours come from the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from txagent_train.tracking.markup import text
from txagent_train.tracking.sections import Curves, Point

COLOURS = 6
"""How many series colours the style sheet has (classes s0, s1, ...); more series start again."""

_LARGEST = 1e200
_MAX_POINTS = 600
_MARKED_POINTS = 30
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 10, 44


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels. ``ticks`` are values with the text that stands at them."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def pixel(self, value: float) -> float:
        """Where ``value`` lies, in pixels."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)


def line_chart(curves: Curves) -> tuple[str, list[str]]:
    """Draw a chart.

    Returns:
        the ``<svg>`` element, and notes on the points that it does not draw one by one.
    """
    width, height = (1000, 320) if curves.wide else (490, 260)
    notes: list[str] = []
    drawn: dict[str, list[list[Point]]] = {}
    for name, points in curves.series.items():
        drawn[name] = _runs(points, log_y=curves.log_y)
        left_out = len(points) - sum(map(len, drawn[name]))
        if left_out:
            why = "not finite or not above 0" if curves.log_y else "not finite"
            notes.append(f"{name}: {left_out:,} of {len(points):,} values are {why}; the line is broken there.")
        thinned = [_thin(run) for run in drawn[name]]
        count, kept = sum(map(len, drawn[name])), sum(map(len, thinned))
        if kept < count:
            notes.append(f"{name}: {kept:,} of {count:,} points are drawn, the lowest and highest of each interval.")
        drawn[name] = thinned
    every = [point for runs in drawn.values() for run in runs for point in run]
    if not every:
        return '<p class="empty">No values to draw.</p>', notes
    xs, ys = [point[0] for point in every], [point[1] for point in every]
    # Optimizer steps are whole: no tick stands between two of them.
    apart = 1.0 if all(value == int(value) for value in xs) else 0.0
    x = _linear(xs, _LEFT, width - _RIGHT, pad=0.0, count=10 if curves.wide else 5, apart=apart)
    make_y = _logarithmic if curves.log_y else _linear
    y = make_y(ys, height - _BOTTOM, _TOP, pad=0.06, count=5)
    parts = [_axes(curves, x, y, width, height)]
    for index, (name, runs) in enumerate(drawn.items()):
        parts.append(_series(name, runs, x, y, index % COLOURS, curves.x_label))
    label = text(f"{curves.heading}: {curves.y_label} over {curves.x_label}")
    body = "".join(parts)
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{body}</svg>', notes


def _runs(points: Sequence[Point], *, log_y: bool) -> list[list[Point]]:
    """The unbroken stretches of points that can be drawn."""

    def can_be_drawn(point: Point) -> bool:
        return all(abs(value) < _LARGEST for value in point) and (point[1] > 0 or not log_y)

    def flush(value: float) -> float:
        # What is smaller is 0 to the eye, and would leave no float for the ticks between.
        return 0.0 if abs(value) < 1 / _LARGEST else float(value)

    flushed = [(flush(x), flush(y)) for x, y in points]
    return [list(run) for usable, run in groupby(flushed, key=can_be_drawn) if usable]


def _thin(points: list[Point]) -> list[Point]:
    """At most _MAX_POINTS points: of each interval the first, lowest and highest, so that no spike is lost."""
    if len(points) <= _MAX_POINTS:
        return points
    size = math.ceil(len(points) * 3 / _MAX_POINTS)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        part = range(start, min(start + size, len(points)))
        indices = {start, min(part, key=lambda i: points[i][1]), max(part, key=lambda i: points[i][1])}
        kept.extend(points[i] for i in sorted(indices))
    if kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def nice_ticks(low: float, high: float, count: int, apart: float = 0.0) -> list[float]:
    """About ``count`` round values within [low, high]: 1, 2 or 5 times a power of ten apart, at least ``apart``."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(apart, min((power * m for m in (1, 2, 5, 10)), key=lambda step: abs(math.log(step / rough))))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def _linear(values: Sequence[float], start: float, end: float, *, pad: float, count: int, apart: float = 0.0) -> Scale:
    low, high = min(values), max(values)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        margin = abs(low) * 0.1 or 1.0
        low, high = low - margin, high + margin
    else:
        margin = (high - low) * pad
        # Padding must not make a quantity that is never negative look as if it were.
        low, high = (max(low - margin, 0.0) if low >= 0 else low - margin), high + margin
    ticks = nice_ticks(low, high, count, apart)
    return Scale(low, high, start, end, False, tuple(zip(ticks, _labels(ticks), strict=True)))


def _logarithmic(values: Sequence[float], start: float, end: float, *, pad: float, count: int) -> Scale:
    low, high = min(values), max(values)
    low, high = (low / 1.25, high * 1.25) if high / low < 1.5 else (low / 1.05, high * 1.05)
    decades = math.log10(high / low)
    multiples = (1,) if decades > count else ((1, 3) if decades > 2 else (1, 2, 5))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**power for power in powers for m in multiples if low <= m * 10.0**power <= high]
    if len(ticks) < 2:
        ticks = nice_ticks(low, high, count)
    return Scale(low, high, start, end, True, tuple((tick, _short(tick)) for tick in ticks))


def _labels(ticks: Sequence[float]) -> list[str]:
    """The ticks of a linear axis as text, all with the same number of decimals."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) or 1.0
    largest = max(abs(tick) for tick in ticks)
    if largest < 1e-3 or largest >= 1e7:
        power = math.floor(math.log10(largest)) if largest else 0
        decimals = max(0, power - math.floor(math.log10(step) + 1e-9))
        return [f"{tick / 10.0**power:.{decimals}f}e{power}" if tick else "0" for tick in ticks]
    if largest >= 1e4 and step >= 100:
        decimals = 0 if step >= 1000 else 1
        return [f"{tick / 1000:.{decimals}f}k" if tick else "0" for tick in ticks]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{tick:.{decimals}f}" for tick in ticks]


def _short(value: float) -> str:
    return f"{value:.0e}" if value < 1e-3 or value >= 1e5 else f"{value:.4g}"


def _axes(curves: Curves, x: Scale, y: Scale, width: int, height: int) -> str:
    parts: list[str] = []
    for value, label in y.ticks:
        at = y.pixel(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    floor = height - _BOTTOM
    for value, label in x.ticks:
        at = x.pixel(value)
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{floor}" y2="{floor + 4}"/>')
        parts.append(f'<text x="{at:.1f}" y="{floor + 18}" text-anchor="middle">{label}</text>')
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{floor}" y2="{floor}"/>')
    middle = (_LEFT + width - _RIGHT) / 2
    x_label, y_label = text(curves.x_label), text(curves.y_label)
    parts.append(f'<text class="label" x="{middle}" y="{height - 6}" text-anchor="middle">{x_label}</text>')
    upright = f'transform="translate(13 {(_TOP + floor) / 2}) rotate(-90)"'
    parts.append(f'<text class="label" text-anchor="middle" {upright}>{y_label}</text>')
    return "".join(parts)


def _series(name: str, runs: Sequence[Sequence[Point]], x: Scale, y: Scale, colour: int, x_label: str) -> str:
    marked = sum(map(len, runs)) <= _MARKED_POINTS
    lines: list[str] = []
    dots: list[str] = []
    for run in runs:
        at = [(x.pixel(px), y.pixel(py)) for px, py in run]
        lines.append(f'<polyline points="{" ".join(f"{px:.1f},{py:.1f}" for px, py in at)}"/>')
        for (px, py), (vx, vy) in zip(at, run, strict=True):
            title = text(f"{name}: {vy:.6g} at {x_label} {vx:.10g}")
            lone = " lone" if marked or len(run) == 1 else ""
            dots.append(f'<circle class="dot{lone}" cx="{px:.1f}" cy="{py:.1f}" r="4"><title>{title}</title></circle>')
    return f'<g class="s{colour}">{"".join(lines)}{"".join(dots)}</g>'


def legend(series: Mapping[str, object]) -> str:
    """The names of the series beside their colours; a single series needs none."""
    if len(series) < 2:
        return ""
    items = (f'<span class="s{index % COLOURS}"><i></i>{text(name)}</span>' for index, name in enumerate(series))
    return f'<div class="legend">{"".join(items)}</div>'
