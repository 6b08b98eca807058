"""The parts of a report: small frozen records, and their JSON form.

A stage saves sections as JSON into the run directory; the report is built from them at any time. To add a kind
of section: a record here, its line in ``_KINDS``, and the function that renders it in ``html``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from txagent_train.core.codec import trace_from_json, trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace

Cell: TypeAlias = str | int | float | bool | None
Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Text:
    """Plain paragraphs."""

    heading: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """The few numbers that a reader looks for first, by label."""

    heading: str
    figures: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns. Columns named in ``bars`` (numbers, 0 or more) are drawn as bars as well."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    bars: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise DataError(f"table {self.heading!r}: a row does not fit the columns", reason="invalid_section")
        if not set(self.bars) <= set(self.columns):
            raise DataError(f"table {self.heading!r}: bars names an unknown column", reason="invalid_section")


@dataclass(frozen=True, slots=True)
class Curves:
    """Series of (x, y) points by name, in one chart. ``wide`` charts take the whole width, others half."""

    heading: str
    series: Mapping[str, tuple[Point, ...]]
    x_label: str
    y_label: str
    log_y: bool = False
    note: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """Text shown as it is, in a fixed-width font, folded up."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces to browse. ``labels`` is empty, or has one short label for each trace (correct, wrong, ...)."""

    heading: str
    traces: tuple[Trace, ...]
    labels: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.labels and len(self.labels) != len(self.traces):
            raise DataError(
                f"traces {self.heading!r}: {len(self.labels)} labels for {len(self.traces)} traces",
                reason="invalid_section",
            )


Section: TypeAlias = Text | KeyFigures | Table | Curves | Code | Traces

_KINDS: dict[str, type[Section]] = {
    "text": Text,
    "key_figures": KeyFigures,
    "table": Table,
    "curves": Curves,
    "code": Code,
    "traces": Traces,
}


def section_to_json(section: Section) -> JsonObject:
    """A section as a JSON object; ``kind`` says which record it is."""
    kind = next(name for name, record in _KINDS.items() if record is type(section))
    out: JsonObject = {"kind": kind}
    for item in fields(section):
        out[item.name] = getattr(section, item.name)
    if isinstance(section, Traces):
        out["traces"] = [trace_to_json(trace) for trace in section.traces]
    return out


def section_from_json(value: object) -> Section:
    """The inverse of section_to_json.

    Raises:
        DataError: it is no section.
    """
    if not isinstance(value, dict) or value.get("kind") not in _KINDS:
        raise DataError(f"not a section of a report; kinds: {', '.join(_KINDS)}", reason="invalid_section")
    given = {key: item for key, item in value.items() if key != "kind"}
    record = _KINDS[value["kind"]]
    try:
        return record(**{key: _FROM_JSON.get(key, _as_is)(item) for key, item in given.items()})
    except (TypeError, ValueError) as error:
        raise DataError(f"a {value['kind']} section: {error}", reason="invalid_section") from None


def _as_is(value: Any) -> Any:
    return value


def _points(value: dict[str, Any]) -> dict[str, tuple[Point, ...]]:
    # float(), because a value that is not finite is a string in JSON.
    return {name: tuple((float(x), float(y)) for x, y in points) for name, points in value.items()}


_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "paragraphs": tuple,
    "columns": tuple,
    "bars": tuple,
    "labels": tuple,
    "rows": lambda rows: tuple(tuple(row) for row in rows),
    "series": _points,
    "traces": lambda traces: tuple(trace_from_json(trace) for trace in traces),
}
