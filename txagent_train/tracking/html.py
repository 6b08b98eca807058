"""Renders a report's sections to one HTML page that needs nothing else: no network, no other file.

Everything that comes from data is escaped; the only script is ours, and the page's policy admits no other.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby

from txagent_train.tracking.html_traces import render_traces
from txagent_train.tracking.markup import count_of, fold, note, text
from txagent_train.tracking.sections import Cell, Code, Curves, KeyFigures, Section, Table, Text, Traces
from txagent_train.tracking.svg import legend, line_chart


def render_page(title: str, subtitle: str, sections: Sequence[Section], footer: str) -> str:
    """The whole page."""
    style, script = _asset("report.css"), _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    anchors = _anchors(sections)
    body: list[str] = []
    position = 0
    for is_chart, group in groupby(sections, key=lambda section: isinstance(section, Curves)):
        parts: list[str] = []
        for section in group:
            parts.append(_section(section, anchors[position]))
            position += 1
        body.append(f'<div class="charts">{"".join(parts)}</div>' if is_chart else "".join(parts))
    links = " ".join(
        f'<a href="#{anchor}">{text(section.heading)}</a>'
        for section, anchor in zip(sections, anchors, strict=True)
        if section.heading
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        f"<header><h1>{text(title)}</h1><p>{text(subtitle)}</p>\n<nav>{links}</nav></header>\n"
        f"<main>\n{''.join(body)}</main>\n<footer>{text(footer)}</footer>\n<script>{script}</script>\n</body></html>\n"
    )


def format_cell(value: Cell, decimals: int | None = None) -> str:
    """A value as a reader wants it: thousands separated; floats with ``decimals``, or four significant digits."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    if decimals is not None:
        return f"{value:,.{decimals}f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _decimals(values: Sequence[Cell]) -> int | None:
    """As many decimals as the floats of a column need at four significant digits; None where that is no help."""
    floats = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    if not floats or any(value and not 1e-4 <= abs(value) < 1e6 for value in floats):
        return None
    return min(4, max(len(format_cell(value).partition(".")[2]) for value in floats))


def _asset(name: str) -> str:
    return files("txagent_train.tracking").joinpath(name).read_text(encoding="utf-8")


def _anchors(sections: Sequence[Section]) -> list[str]:
    """One unique anchor for each section, made of its heading."""
    anchors: list[str] = []
    for section in sections:
        name = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") or "section"
        anchors.append(f"{name}-{len(anchors)}" if name in anchors else name)
    return anchors


def _section(section: Section, anchor: str) -> str:
    match section:
        case Text():
            inner = _text(section)
        case KeyFigures():
            inner = _key_figures(section)
        case Table():
            inner = _table(section)
        case Curves():
            inner = _curves(section)
        case Code():
            inner = _code(section)
        case Traces():
            inner = render_traces(section)
    heading = f"<h2>{text(section.heading)}</h2>\n" if section.heading else ""
    wide = ' class="wide"' if isinstance(section, Curves) and section.wide else ""
    return f'<section id="{anchor}"{wide}>{heading}{inner}</section>\n'


def _text(section: Text) -> str:
    return "".join(f"<p>{text(paragraph)}</p>\n" for paragraph in section.paragraphs)


def _key_figures(section: KeyFigures) -> str:
    items = (
        f"<div><dt>{text(label)}</dt><dd>{text(format_cell(value))}</dd></div>"
        for label, value in section.figures.items()
    )
    return f'<dl class="figures">{"".join(items)}</dl>'


def _table(section: Table) -> str:
    head: list[str] = []
    cells: list[list[str]] = [[] for _ in section.rows]
    for index, column in enumerate(section.columns):
        values = [row[index] for row in section.rows]
        style = ' class="number"' if _is_numeric(values) else ""
        decimals = _decimals(values)
        head.append(f"<th{style}>{text(column)}</th>")
        for row, value in zip(cells, values, strict=True):
            row.append(f"<td{style}>{text(format_cell(value, decimals))}</td>")
        if column in section.bars:
            head.append("<th></th>")
            for row, bar in zip(cells, _bars(values), strict=True):
                row.append(bar)
    rows = "".join(f"<tr>{''.join(row)}</tr>\n" for row in cells)
    # A table without column names, such as one of names and values, has no head.
    top = f"<thead><tr>{''.join(head)}</tr></thead>\n" if any(section.columns) else ""
    return f'<div class="scroll"><table>{top}<tbody>{rows}</tbody></table></div>{note(section.note)}'


def _bars(values: Sequence[Cell]) -> list[str]:
    """A table cell with a bar for each value; the largest value fills it."""
    lengths = [max(0.0, value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0 for value in values]
    longest = max(lengths, default=0.0) or 1.0
    return [f'<td class="bar"><i style="width:{length / longest:.1%}"></i></td>' for length in lengths]


def _is_numeric(values: Sequence[Cell]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


def _curves(section: Curves) -> str:
    chart, notes = line_chart(section)
    return legend(section.series) + chart + note(" ".join([section.note, *notes]).strip())


def _code(section: Code) -> str:
    return fold(count_of(len(section.text.splitlines()), "line"), f"<pre>{text(section.text)}</pre>")
