"""``txagent-train data``: import, stats, split."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from txagent_train.core.records import JsonObject
from txagent_train.data.importers import IMPORTERS, NATIVE
from txagent_train.data.loading import ImportReport, import_traces
from txagent_train.data.split import SplitReport, split_traces
from txagent_train.data.stats import collect_stats

app = typer.Typer(help="Import, count and split traces.", no_args_is_help=True)

FORMATS = f"one of: {', '.join(IMPORTERS)}"


class InvalidCallsChoice(StrEnum):
    """What to do with a trace whose calls name no tool or break its schema."""

    DROP = "drop"
    KEEP = "keep"
    ERROR = "error"


Format = Annotated[str, typer.Option("--format", "-f", help=f"Format of the file, {FORMATS}.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]


@app.command("import")
def import_command(
    source: Annotated[Path, typer.Argument(help="A .jsonl, .jsonl.gz or .json file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The native file to write (.gz compresses).")],
    format: Format = "openai",
    keep_incomplete: Annotated[
        bool, typer.Option("--keep-incomplete", help="Keep traces that end without an answer.")
    ] = False,
    invalid_calls: Annotated[
        InvalidCallsChoice, typer.Option(help="For calls that name no tool or break its schema.")
    ] = InvalidCallsChoice.DROP,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read traces, check them, and write them in the native format.

    Records that are left out are counted by reason and named in OUT.dropped.jsonl.
    """
    report = import_traces(
        source,
        out,
        format=format,
        keep_incomplete=keep_incomplete,
        invalid_calls=invalid_calls.value,
        overwrite=overwrite,
    )
    if as_json:
        _print_json(report.to_json())
    else:
        _show_import(report)


@app.command()
def stats(
    traces: Annotated[Path, typer.Argument(help="A file of traces.", show_default=False)],
    format: Format = NATIVE,
    as_json: AsJson = False,
) -> None:
    """Count traces, steps, calls and tools, complete or not."""
    counts = collect_stats(traces, format).to_json()
    if as_json:
        _print_json(counts)
        return
    console = Console()
    characters = counts.pop("characters")
    mappings = {name: counts.pop(name) for name in ("calls_by_tool", "steps_per_trace", "unreadable")}
    numbers = {name.replace("_", " "): value for name, value in counts.items()}
    numbers |= {f"characters, {name}": value for name, value in characters.items()}
    console.print(_table(str(traces), ("what", "number"), numbers))
    for name, mapping in mappings.items():
        if mapping:
            title = name.replace("_", " ")
            console.print(_table(title, ("", "number"), mapping))


@app.command()
def split(
    traces: Annotated[Path, typer.Argument(help="A file of traces.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for train.jsonl and heldout.jsonl.")],
    fraction: Annotated[float, typer.Option(help="Share of the traces to hold out.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Another seed holds out other traces.")] = 0,
    format: Format = NATIVE,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Hold out traces so that no question, entity or call of theirs is in the training part."""
    report = split_traces(traces, out, format=format, fraction=fraction, seed=seed, overwrite=overwrite)
    if as_json:
        _print_json(report.to_json())
    else:
        _show_split(report, out)


def _print_json(value: JsonObject) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def _table(
    title: str, columns: tuple[str, str], rows: Mapping[str, object], *, notes: Mapping[str, str] | None = None
) -> Table:
    # Names come from files: they must not be read as markup.
    table = Table(title=escape(title), title_justify="left")
    table.add_column(columns[0])
    table.add_column(columns[1], justify="right")
    if notes:
        table.add_column("what to do", overflow="fold")
    for name, value in rows.items():
        note = (escape(notes.get(name, "")),) if notes else ()
        table.add_row(escape(name), _number(value), *note)
    return table


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _show_import(report: ImportReport) -> None:
    typer.echo(f"read {report.read:,}, accepted {report.accepted:,} -> {report.out}")
    if report.dropped:
        Console().print(_table("dropped", ("reason", "records"), report.dropped, notes=report.fixes))
        typer.echo(f"each is named in {report.dropped_file}")


def _show_split(report: SplitReport, out: Path) -> None:
    rows = {
        "traces": report.traces,
        "train": report.train,
        "held out": report.heldout,
        "dropped (share a call with held-out ones)": report.straddlers,
        "components": report.components,
        "largest component": f"{report.largest_component:,} ({report.largest_share:.1%})",
    }
    Console().print(_table(str(out), ("what", "number"), rows))
    if report.note:
        typer.echo(f"Note: {report.note}")
