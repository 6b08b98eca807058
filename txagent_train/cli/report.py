"""``txagent-train report``: one HTML file for a run, rebuilt from what lies in its directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.tracking.report import build_run_report


def report(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The output_dir of a run, finished or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Write one HTML file with the curves, tables and traces of a run."""
    path = build_run_report(run_dir)
    print(json.dumps({"report": str(path)}) if as_json else path)
