"""``txagent-train quickstart``: everything once, on this machine, offline."""

from __future__ import annotations

import json as json_codec
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.data.writing import check_place


def quickstart(
    out: Annotated[Path, typer.Option(help="Where data, run and report go.")] = Path("runs/quickstart"),
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train the embedded model on demo traces and compare it with its base, in about a quarter of an hour."""
    check_place(out / "x")
    from rich.console import Console
    from rich.table import Table

    from txagent_train.demo.quickstart import comparison_table, run_quickstart

    result = run_quickstart(out)
    if json:
        print(json_codec.dumps(result.to_json()))
        return
    shown = comparison_table(result.rows)
    table = Table(title=shown.heading, caption=shown.note)
    for column in shown.columns:
        table.add_column(column)
    for row in shown.rows:
        table.add_row(*(str(cell) for cell in row))
    console = Console()
    console.print(table)
    times = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in result.seconds.items())
    console.print(f"{times}; {sum(result.seconds.values()) / 60:.1f} minutes in all")
    console.print(f"The model is in {result.training.model_dir}, the report is {result.report}")
