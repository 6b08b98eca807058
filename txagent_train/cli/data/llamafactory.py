"""``txagent-train data import --format llamafactory``: a whole run, its data and its settings."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from txagent_train.cli.data.shared import print_json, table
from txagent_train.data.importing import Written
from txagent_train.data.llamafactory import LlamaFactoryReport, import_llamafactory
from txagent_train.data.loading import Incomplete, InvalidCalls

LLAMAFACTORY = "llamafactory"
SETTINGS_SUFFIXES = (".yaml", ".yml")
"""No data is in files of these names, so they tell the format."""


def import_run(
    settings: Path, out: Path, *, incomplete: Incomplete, invalid_calls: InvalidCalls, overwrite: bool, as_json: bool
) -> None:
    """Import the data sets of a LLaMA-Factory YAML file, write its recipe beside them, and print what was done."""
    report = import_llamafactory(settings, out, incomplete=incomplete, invalid_calls=invalid_calls, overwrite=overwrite)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: LlamaFactoryReport) -> None:
    typer.echo(f"format: {LLAMAFACTORY} ({', '.join(report.datasets)})")
    _show_written("training", report.training)
    if report.evaluation is not None:
        _show_written("held out", report.evaluation)
    for path in report.files:
        typer.echo(f"-> {path}")
    typer.echo(f"recipe -> {report.recipe}")
    if report.notes:
        typer.echo("\nNot in the recipe, or not just so:")
    for key, why in report.notes.items():
        typer.echo(f"  {key}: {why}")


def _show_written(what: str, written: Written) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in written.kinds.items() if count)
    typer.echo(f"{what}: read {written.read:,}, accepted {written.accepted:,} ({kinds})")
    if written.dropped:
        Console().print(table("dropped", ("reason", "records"), written.dropped, notes=written.fixes))
        typer.echo(f"each is named in {written.dropped_file}")
    for note in written.notes:
        typer.echo(f"Note: {note}")
