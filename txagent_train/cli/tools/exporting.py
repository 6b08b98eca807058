"""``txagent-train tools export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import AsJson, Overwrite, print_json
from txagent_train.cli.tools.shared import ToolsArgument, check_not_input
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolimport import export_tools
from txagent_train.data.toolspecs import FORMATS, ORIGIN
from txagent_train.tracking.markup import count_of


def export(
    tools: ToolsArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: a JSON list, or .jsonl (.gz compresses).")
    ],
    format: Annotated[
        str,
        typer.Option("--format", "-f", help=f"One of: {', '.join([ORIGIN, *FORMATS])}; {ORIGIN}: each as it was read."),
    ] = ORIGIN,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write the specs of a toolbox: as they were read, to the letter, or in another format."""
    check_not_input(out, [tools])
    report = export_tools(Toolbox.read(tools), out, format=format, overwrite=overwrite)
    if as_json:
        print_json(report.to_json())
        return
    named = ", ".join(f"{count:,} {name}" for name, count in report.formats.items())
    typer.echo(f"wrote {count_of(report.written, 'spec')} ({named}) -> {report.out}")
    if report.reduced:
        typer.echo(
            f"Note: {count_of(report.reduced, 'spec')} had more than name, description and parameters; "
            f"the format {format} has no place for it, and the toolbox keeps it"
        )
