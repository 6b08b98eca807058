"""``txagent-train tools collect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Format, Overwrite, print_json, table
from txagent_train.cli.tools.importing import DuplicatesChoice
from txagent_train.cli.tools.shared import check_not_input
from txagent_train.data.importers import AUTO
from txagent_train.data.toolcollect import CollectReport, collect_tools


def collect(
    traces: Annotated[list[Path], typer.Argument(help="Files of traces.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The toolbox to write (.gz compresses).")],
    format: Format = AUTO,
    duplicates: Annotated[
        DuplicatesChoice,
        typer.Option(help="For a tool that traces show in several forms; first: keep that, count the others."),
    ] = DuplicatesChoice.ERROR,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Make a toolbox of the tools that traces bring with them."""
    check_not_input(out, traces)
    report = collect_tools(traces, out, format=format, duplicates=duplicates.value, overwrite=overwrite)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: CollectReport) -> None:
    console = Console()
    typer.echo(f"{report.tools:,} tools of {report.traces:,} traces -> {report.out}")
    for title, column, rows in (
        ("shown in another form too, left out", "tool", report.unlike),
        ("called, but shown by no list of the trace", "tool", report.undeclared),
        ("records left out", "reason", report.dropped),
    ):
        if rows:
            console.print(table(title, (column, "traces"), rows))
