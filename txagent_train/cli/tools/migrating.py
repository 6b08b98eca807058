"""``txagent-train tools migrate``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Format, Overwrite, print_json, table
from txagent_train.cli.tools.shared import check_not_input
from txagent_train.data.importers import AUTO
from txagent_train.data.migrate import MigrateReport, migrate_traces
from txagent_train.data.toolbox import Toolbox
from txagent_train.tracking.markup import count_of


class DirectionChoice(StrEnum):
    """The names that traces get: the new ones of the map, or the old ones."""

    V1 = "v1"
    V0 = "v0"


class UnmappedChoice(StrEnum):
    """What to do with a tool that has no counterpart."""

    DROP = "drop"
    KEEP = "keep"
    ERROR = "error"


def migrate(
    traces: Annotated[Path, typer.Argument(help="A file of traces.", show_default=False)],
    names: Annotated[
        Path, typer.Option("--map", help="The map: a JSON list of {old_name, new_name or null}, or {old: new}.")
    ],
    to: Annotated[DirectionChoice, typer.Option(help="v1: to the new names of the map; v0: to the old ones.")],
    tools: Annotated[Path, typer.Option("--toolbox", help="The tools that traces get; `tools import` makes it.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The native file to write (.gz compresses).")],
    unmapped: Annotated[
        UnmappedChoice,
        typer.Option(
            help="For tools without counterpart. drop: traces that call one are left out, and lists lose it; "
            "keep: they stay as they are."
        ),
    ] = UnmappedChoice.DROP,
    format: Format = AUTO,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Give traces the tools of another version of their toolbox: names, specs, and what Tool_RAG returned."""
    check_not_input(out, [traces, names, tools])
    report = migrate_traces(
        traces,
        out,
        names=names,
        to=to.value,
        toolbox=Toolbox.read(tools),
        unmapped=unmapped.value,
        format=format,
        overwrite=overwrite,
    )
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: MigrateReport) -> None:
    console = Console()
    typer.echo(f"read {report.read:,}, migrated {report.accepted:,} -> {report.out}")
    if report.unmapped:
        title = "tools without counterpart"
        console.print(table(title, ("tool", "traces"), report.unmapped, notes=report.why, note_title="why"))
    invalid = sum(report.invalid_arguments.values())
    typer.echo(f"{count_of(report.calls, 'call')} migrated, {invalid:,} do not fit the new spec of their tool")
    if invalid:
        console.print(table("calls that do not fit", ("tool", "calls"), report.invalid_arguments))
    if report.dropped:
        console.print(table("dropped", ("reason", "traces"), report.dropped, notes=report.fixes))
        typer.echo(f"each is named in {report.dropped_file}")
