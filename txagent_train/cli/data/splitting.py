"""``txagent-train data split``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Format, Overwrite, print_json, table
from txagent_train.data.importers import NATIVE
from txagent_train.data.split import SplitReport, split_traces


def split(
    traces: Annotated[Path, typer.Argument(help="A file of traces.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for train.jsonl and heldout.jsonl.")],
    fraction: Annotated[float, typer.Option(help="Share of the traces to hold out.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Another seed holds out other traces.")] = 0,
    format: Format = NATIVE,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Hold out traces so that no question, entity or call of theirs is in the training part.

    Beside them heldout.frozen.json is written: name it in data.frozen, and a training run refuses held-out traces.
    """
    report = split_traces(traces, out, format=format, fraction=fraction, seed=seed, overwrite=overwrite)
    if as_json:
        print_json(report.to_json())
    else:
        _show_split(report, out)


def _show_split(report: SplitReport, out: Path) -> None:
    rows = {
        "traces": report.traces,
        "train": f"{report.train:,} ({report.train_share:.1%})",
        "held out": f"{report.heldout:,} ({report.heldout_share:.1%})",
        "dropped (share a key with held-out ones)": f"{report.straddlers:,} ({report.straddlers_share:.1%})",
        f"components, by {report.tied_by}": report.components,
        "largest component": f"{report.largest_component:,} ({report.largest_share:.1%})",
    }
    Console().print(table(str(out), ("what", "number"), rows))
    if report.note:
        typer.echo(f"Note: {report.note}")
