"""``txagent-train tools import``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Overwrite, print_json, table
from txagent_train.cli.tools.shared import ToolsFormat, check_not_input
from txagent_train.data.toolimport import ToolImportReport, import_tools
from txagent_train.data.toolspecs import AUTO
from txagent_train.tracking.markup import count_of


class DuplicatesChoice(StrEnum):
    """What to do with a tool that has the name of an earlier, different one."""

    ERROR = "error"
    FIRST = "first"


def import_command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Files: a list of specs, specs by name, JSON Lines, one spec; also .gz or .zst. Or folders of them.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The toolbox to write (.gz compresses).")],
    format: ToolsFormat = AUTO,
    duplicates: Annotated[
        DuplicatesChoice,
        typer.Option(help="For a tool with the name of an earlier, different one; first: keep that, count the others."),
    ] = DuplicatesChoice.ERROR,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read tool specs and write them as one toolbox, in their order; nothing of them is lost (tools export).

    What is left out is counted by reason and named in OUT.dropped.jsonl.
    """
    check_not_input(out, sources)
    report = import_tools(sources, out, format=format, duplicates=duplicates.value, overwrite=overwrite)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: ToolImportReport) -> None:
    named = ", ".join(f"{count:,} {name}" for name, count in report.formats.items())
    typer.echo(f"format: {named}" + (" (guessed)" if report.guessed else ""))
    typer.echo(f"read {report.read:,}, accepted {report.accepted:,} -> {report.out}")
    if report.repeated:
        typer.echo(f"{count_of(report.repeated, 'spec')} occurred before, the same to the letter")
    if report.no_parameters:
        typer.echo(f"Note: {count_of(report.no_parameters, 'spec')} without parameters, read as tools that take none")
    if report.dropped:
        Console().print(table("dropped", ("reason", "specs"), report.dropped, notes=report.fixes))
        typer.echo(f"each is named in {report.dropped_file}")
