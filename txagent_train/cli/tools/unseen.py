"""``txagent-train tools unseen``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Format, Overwrite, print_json, table
from txagent_train.cli.tools.shared import check_not_input
from txagent_train.core.errors import DataError
from txagent_train.data.importers import AUTO
from txagent_train.data.rewrites import RewriteSet
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.unseen import SETS, UnseenReport, UnseenSplit, write_unseen_sets


def unseen(
    traces: Annotated[Path, typer.Argument(help="A file of held-out traces.", show_default=False)],
    tools: Annotated[Path, typer.Option("--toolbox", help="The tools; `tools import` makes it.")],
    rewrites: Annotated[Path, typer.Option(help="Their rewrites, some held out; `tools rewrite` makes them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the sets.")],
    seed: Annotated[int, typer.Option(help="Another seed takes other held-out versions.")] = 0,
    format: Format = AUTO,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Sort held-out traces by what training saw of their tools: seen, unseen rewrites, unseen tools.

    Traces with tools that training sees are written as it would show them (seen.jsonl) and under held-out versions of
    the tools that they call (unseen_rewrites.jsonl); of traces with tools that it never sees, the steps that call one
    are judged (unseen_tools.jsonl). Name them in data.eval: the loss of each is reported.
    """
    for name in SETS:
        check_not_input(out / f"{name}.jsonl", [traces, tools, rewrites])
    toolbox, rewritten = Toolbox.read(tools), RewriteSet.read(rewrites)
    try:
        split = UnseenSplit(toolbox, rewritten, seed)
    except DataError as error:
        raise error.at(path=str(rewrites)) from None
    report = write_unseen_sets(traces, out, split, format=format, overwrite=overwrite)
    if as_json:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: UnseenReport) -> None:
    console = Console()
    typer.echo(f"read {report.read:,} traces ({report.format})")
    rows = {name: f"{count:,} traces, {report.steps[name]:,} steps" for name, count in report.traces.items()}
    console.print(table("held-out sets", ("set", "judged"), rows, notes=report.files, note_title="file"))
    if report.counts:
        console.print(table("rewriting", ("what", "count"), report.counts))
    if report.dropped:
        console.print(table("left out of all", ("reason", "traces"), report.dropped))
        typer.echo(f"each is named in {report.dropped_file}")
