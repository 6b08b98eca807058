"""``txagent-train sweep``: a recipe with several settings and seeds, and the table of what came out."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import AsJson, print_json
from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import UserError
from txagent_train.launch.command import LaunchPlan
from txagent_train.launch.site import load_site
from txagent_train.launch.slurm import BatchJob, batch_script, submit
from txagent_train.launch.strategies import Strategy, strategy_named
from txagent_train.launch.sweep import (
    MEASURES,
    Outcome,
    Row,
    SweepRun,
    outcome_of,
    read_sweep,
    runs_of,
    table_of,
    write_sweep,
)

_INTERRUPTED = 130


def sweep(
    recipe: Annotated[
        str | None, typer.Argument(help="The recipe: a file, or the name of a shipped one.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=[VALUE,VALUE]]...", help="What to try; each list is a dimension of the grid."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1 for each setting.")] = 1,
    out: Annotated[Path | None, typer.Option(help="The folder of the runs; else output_dir with -sweep.")] = None,
    table: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only show what came out of the sweep in DIR.", show_default=False),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="One job array instead of one run after another.")] = False,
    site: Annotated[Path, typer.Option(help="The cluster, with --slurm.")] = Path("site.yaml"),
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each run, with --slurm.")] = 1,
    accelerate: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How its processes share a run, with --slurm.", show_default=False),
    ] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Print the commands or the script; run nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a recipe with every combination of settings and seeds, then compare them.

    sweep RECIPE train.learning_rate=[1e-4,2e-4] adapter.lora.r=[8,16] --seeds 3 makes 12 runs. What is finished is not
    run again. One that fails is counted, and the others go on.
    """
    if table is not None:
        _show(table_of([outcome_of(run) for run in read_sweep(table)]), as_json=as_json)
        return
    if recipe is None:
        raise UserError("names no recipe", where="sweep", fix="sweep RECIPE key=[a,b], or sweep --table DIR")
    path = find_recipe(recipe).resolve()
    first = load_recipe(path)
    folder = (out or first.output_dir.with_name(f"{first.output_dir.name}-sweep")).resolve()
    runs = runs_of(overrides or (), range(seeds), folder)
    for run in runs:  # all combinations before any of them runs
        check_files(load_recipe(path, run.overrides), where=f"{path} ({run.settings})")
    if slurm:
        cluster = load_site(site)
        per_node = max(cluster.gpus_per_node, 1)
        usual: Strategy = "ddp" if nodes * per_node > 1 else "single"
        strategy = strategy_named(accelerate) if accelerate else usual
        plan = LaunchPlan(first.kind, str(path), strategy, nodes, 1 if strategy == "single" else per_node)
        _submit(BatchJob(f"{first.name}-sweep", plan, cluster, runs, folder / "slurm"), folder, print_only=print_only)
        return
    if print_only:
        for run in runs:
            print(shlex.join(_command(path, run)))
        return
    write_sweep(folder, str(path), runs)
    outcomes = _one_after_another(path, runs)
    _show(table_of(outcomes), as_json=as_json)
    if not all(outcome.finished for outcome in outcomes):
        raise typer.Exit(1)


def _command(recipe: Path, run: SweepRun) -> list[str]:
    return [sys.executable, "-m", "txagent_train", "sft", str(recipe), *run.overrides]


def _one_after_another(recipe: Path, runs: Sequence[SweepRun]) -> list[Outcome]:
    outcomes = []
    for number, run in enumerate(runs, start=1):
        print(f"{number}/{len(runs)}: {run.settings}, seed {run.seed}", file=sys.stderr)
        if not outcome_of(run).finished:
            code = subprocess.run(_command(recipe, run), check=False).returncode
            if code == _INTERRUPTED:
                raise KeyboardInterrupt("the same command goes on with the sweep")
        outcomes.append(outcome_of(run))
    return outcomes


def _submit(job: BatchJob, folder: Path, *, print_only: bool) -> None:
    if print_only:
        print(batch_script(job), end="")
        return
    write_sweep(folder, job.plan.recipe, job.runs)
    number = submit(job)
    command = f"txagent-train sweep --table {shlex.quote(str(folder))}"
    print(f"job {number}, {len(job.runs)} runs; when they are done: {command}")


def _show(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        print_json({"settings": [row.to_json() for row in rows]})
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    out = Table(title="mean +- standard deviation over the seeds that finished", title_justify="left")
    out.add_column("settings", overflow="fold")
    for heading in ("seeds", *MEASURES.values()):
        out.add_column(heading, justify="right", no_wrap=True)
    out.add_column("not finished")
    for row in rows:
        values = (_value(row, name) for name in MEASURES)
        others = ", ".join(f"{count} {state}" for state, count in row.not_finished.items())
        out.add_row(escape(row.settings), str(row.finished), *values, others)
    Console().print(out)


def _value(row: Row, name: str) -> str:
    if name not in row.values:
        return "-"
    mean, deviation = row.values[name]
    digits = ".0f" if name == "steps" else ".4f"
    return f"{mean:{digits}}" + ("" if deviation is None else f" +- {deviation:{digits}}")
