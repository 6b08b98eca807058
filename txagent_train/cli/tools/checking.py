"""``txagent-train tools check``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from txagent_train.cli.data.shared import AsJson, print_json, table
from txagent_train.cli.tools.shared import ToolsArgument, ToolsFormat
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolcheck import MEANINGS, Finding, ToolCheck, check_toolbox
from txagent_train.data.toolspecs import AUTO
from txagent_train.rendering.preview import visible
from txagent_train.tracking.markup import count_of

_SHOWN = 5
_DETAIL_LIMIT = 160


def check(
    tools: ToolsArgument,
    format: ToolsFormat = AUTO,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 where anything is found.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help=f"List every finding, not the first {_SHOWN} of each kind.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for what a model or a server will not take: long names, broken schemas, missing descriptions.

    Two different tools of one name are an error.
    """
    found = check_toolbox(Toolbox.read(tools, format))
    if as_json:
        print_json(found.to_json())
    else:
        _show(found, every=every)
    if strict and found.findings:
        raise typer.Exit(2)


def _show(found: ToolCheck, *, every: bool) -> None:
    if not found.findings:
        typer.echo(f"{count_of(found.tools, 'tool')}: nothing found")
        return
    console = Console()
    console.print(
        table(
            f"{count_of(found.tools, 'tool')}",
            ("finding", "number"),
            found.counts,
            notes=MEANINGS,
            note_title="meaning",
        )
    )
    for kind, count in found.counts.items():
        findings = [finding for finding in found.findings if finding.kind == kind]
        console.print(_listed(kind, findings if every else findings[:_SHOWN]))
        if not every and count > _SHOWN:
            console.print(f"... and {count - _SHOWN:,} more (--all)")


def _listed(kind: str, findings: list[Finding]) -> Table:
    out = Table(title=kind, title_justify="left", show_header=False)
    out.add_column("tool", overflow="fold")
    out.add_column("detail", overflow="fold")
    for finding in findings:
        out.add_row(_safe(finding.tool), _safe(finding.detail))
    return out


def _safe(text: str) -> str:
    """Text for a table: what comes from a file is neither markup nor able to move the cursor."""
    shown = text if len(text) <= _DETAIL_LIMIT else text[:_DETAIL_LIMIT] + "..."
    return escape(visible(shown))
