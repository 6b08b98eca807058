"""``txagent-train data import``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.llamafactory import LLAMAFACTORY, SETTINGS_SUFFIXES, import_run
from txagent_train.cli.data.shared import AsJson, Format, Overwrite, print_json, table
from txagent_train.core.errors import UserError
from txagent_train.data.importers import AUTO
from txagent_train.data.importing import ImportReport, import_traces


class InvalidCallsChoice(StrEnum):
    """What to do with a trace whose calls name no tool or break its schema."""

    DROP = "drop"
    KEEP = "keep"
    ERROR = "error"


class IncompleteChoice(StrEnum):
    """What to do with a trace that does not end in an answer."""

    DROP = "drop"
    STEPS = "steps"
    ERROR = "error"


class SuperviseChoice(StrEnum):
    """Which steps of a record are trained on."""

    LAST = "last"
    ALL = "all"


SOURCE_HELP = (
    "A file (.jsonl, .json, also .gz or .zst; .parquet, .arrow), or a folder of Parquet or of a saved data set."
)


def import_command(
    source: Annotated[Path, typer.Argument(help=SOURCE_HELP, show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The native file to write (.gz compresses).")],
    format: Format = AUTO,
    incomplete: Annotated[
        IncompleteChoice, typer.Option(help="For traces without an answer; steps: keep them, to train on their steps.")
    ] = IncompleteChoice.DROP,
    invalid_calls: Annotated[
        InvalidCallsChoice, typer.Option(help="For calls that name no tool or break its schema.")
    ] = InvalidCallsChoice.DROP,
    supervise: Annotated[
        SuperviseChoice | None,
        typer.Option(
            help="Steps of a record to train on. Default: all, but last for toolbench, whose rows are prefixes.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Read traces, check them, and write them in the native format.

    Records that are left out are counted by reason and named in OUT.dropped.jsonl. Plain chat beside traces goes to a
    file of its own, named like OUT with .chat. With --format llamafactory, SOURCE
    is the YAML of a LLaMA-Factory run: its local data sets are imported, and its settings become a recipe beside OUT.
    """
    if format == LLAMAFACTORY or (format == AUTO and source.suffix in SETTINGS_SUFFIXES):
        if supervise is not None:
            fix = "mask_history of the settings says which turns are trained on"
            raise UserError("--supervise is not for the format llamafactory", where=str(source), fix=fix)
        import_run(
            source,
            out,
            incomplete=incomplete.value,
            invalid_calls=invalid_calls.value,
            overwrite=overwrite,
            as_json=as_json,
        )
        return
    report = import_traces(
        source,
        out,
        format=format,
        incomplete=incomplete.value,
        invalid_calls=invalid_calls.value,
        supervise=None if supervise is None else supervise.value,
        overwrite=overwrite,
    )
    if as_json:
        print_json(report.to_json())
    else:
        _show_import(report)


def _show_import(report: ImportReport) -> None:
    typer.echo(f"format: {report.format}" + (" (guessed)" if report.guessed else ""))
    if report.supervise == "last":
        typer.echo("trained on: the last step of each record (--supervise all: every step)")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.kinds.items() if count)
    typer.echo(f"read {report.read:,}, accepted {report.accepted:,} ({kinds}) -> {report.out}")
    if report.chat_out is not None:
        typer.echo(f"the plain chat -> {report.chat_out} (a source of a recipe is of one kind)")
    if report.dropped:
        Console().print(table("dropped", ("reason", "records"), report.dropped, notes=report.fixes))
        typer.echo(f"each is named in {report.dropped_file}")
    for note in report.notes:
        typer.echo(f"Note: {note}")
