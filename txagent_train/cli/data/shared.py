"""What the data commands share: their common options, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from txagent_train.core.records import JsonObject
from txagent_train.data.importers import AUTO, IMPORTERS

FORMATS = f"one of: {', '.join([AUTO, *IMPORTERS])}; {AUTO} is guessed from the first records"

Format = Annotated[str, typer.Option("--format", "-f", help=f"Format of the file, {FORMATS}.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]


def print_json(value: JsonObject) -> None:
    """Print a report as JSON; in ASCII where the output cannot spell a text in it.

    Text of data files may hold half surrogate pairs, which no encoding has.
    """
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value)
    typer.echo(text)


def table(
    title: str,
    columns: tuple[str, str],
    rows: Mapping[str, object],
    *,
    notes: Mapping[str, str] | None = None,
    note_title: str = "what to do",
) -> Table:
    # Names come from files: they must not be read as markup.
    out = Table(title=escape(title), title_justify="left")
    out.add_column(columns[0])
    out.add_column(columns[1], justify="right")
    if notes:
        out.add_column(note_title, overflow="fold")
    for name, value in rows.items():
        note = (escape(notes.get(name, "")),) if notes else ()
        out.add_row(escape(name), _number(value), *note)
    return out


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
