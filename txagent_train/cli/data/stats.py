"""``txagent-train data stats``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Format, print_json, table
from txagent_train.data.importers import AUTO
from txagent_train.data.stats import collect_stats

MAPPINGS = ("kinds", "messages", "calls_by_tool", "steps_per_trace", "unreadable")


def stats(
    traces: Annotated[Path, typer.Argument(help="A file or folder of traces.", show_default=False)],
    format: Format = AUTO,
    as_json: AsJson = False,
) -> None:
    """Count traces, steps, calls and tools, complete or not."""
    counts = collect_stats(traces, format).to_json()
    if as_json:
        print_json(counts)
        return
    typer.echo(f"format: {counts.pop('format')}" + (" (guessed)" if format == AUTO else ""))
    console = Console()
    characters = counts.pop("characters")
    mappings = {
        name: counts.pop(name) for name in ("kinds", "messages", "calls_by_tool", "steps_per_trace", "unreadable")
    }
    numbers = {name.replace("_", " "): value for name, value in counts.items()}
    numbers |= {f"characters, {name}": value for name, value in characters.items()}
    console.print(table(str(traces), ("what", "number"), numbers))
    for name, mapping in mappings.items():
        if mapping:
            title = name.replace("_", " ")
            console.print(table(title, ("", "number"), mapping))
