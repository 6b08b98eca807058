"""``txagent-train doctor``: what of this machine would stop or slow a training, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import AsJson, print_json
from txagent_train.config.loading import load_recipe
from txagent_train.config.shipped import find_recipe
from txagent_train.launch.doctor import Check
from txagent_train.launch.examine import examine

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    recipe: Annotated[
        str | None, typer.Option(help="Whose model and output folder are looked at too.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check packages, driver, GPUs, network, disks, the hub and SLURM; exit with 1 if there is a problem."""
    loaded = None if recipe is None else load_recipe(find_recipe(recipe))
    checks = examine(
        None if loaded is None else loaded.model, Path("runs") if loaded is None else Path(loaded.output_dir)
    )
    healthy = all(check.state != "problem" for check in checks)
    if as_json:
        print_json({"ok": healthy, "checks": [check.to_json() for check in checks]})
    else:
        _show(checks)
    if not healthy:
        raise typer.Exit(1)


def _show(checks: Sequence[Check]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    out = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        style = _STYLES[check.state]
        fix = f"\n-> {check.fix}" if check.fix else ""
        out.add_row(f"[{style}]{check.state}[/{style}]", escape(check.name), escape(check.found + fix))
    Console().print(out)
