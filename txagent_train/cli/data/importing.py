"""``txagent-train data import``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Format, Overwrite, print_json, table
from txagent_train.data.loading import ImportReport, import_traces


class InvalidCallsChoice(StrEnum):
    """What to do with a trace whose calls name no tool or break its schema."""

    DROP = "drop"
    KEEP = "keep"
    ERROR = "error"


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
        print_json(report.to_json())
    else:
        _show_import(report)


def _show_import(report: ImportReport) -> None:
    typer.echo(f"read {report.read:,}, accepted {report.accepted:,} -> {report.out}")
    if report.dropped:
        Console().print(table("dropped", ("reason", "records"), report.dropped, notes=report.fixes))
        typer.echo(f"each is named in {report.dropped_file}")
