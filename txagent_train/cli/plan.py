"""``txagent-train plan``: what a run will compute and need, before it runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from txagent_train.cli.data.shared import AsJson, print_json
from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import RecipeError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.launch.devices import Device, parse_hardware

if TYPE_CHECKING:
    from txagent_train.sft.layout import RowLayout
    from txagent_train.sft.plan import RunPlan

WORDS: Mapping[str, str] = {
    "steps": "optimizer steps",
    "traces": "traces",
    "samples": "samples",
    "naive": "tokens of the samples",
    "computed": "tokens computed",
    "sharing_ratio": "sharing (tokens of the samples / computed)",
    "supervised": "tokens supervised",
    "rows": "rows",
    "fillers": "rows that only keep ranks in step",
    "padding": "tokens of padding",
    "longest_row": "tokens of the longest row",
    "split_tries": "traces split between rows",
    "repeated": "tokens repeated by splitting",
}
"""What sft.token_plan.TokenCounts counts, in words and in the order shown."""


def plan(
    recipe: Annotated[
        str, typer.Argument(help="The recipe (kind: sft): a file, or the name of a shipped one.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.", show_default=False)
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="4xh100", help="GPUs of a node: adds memory, hours and a strategy.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="With --on: nodes of as many GPUs.")] = 1,
    mfu: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="With --on: share of the GPUs' peak that the hours assume.")
    ] = 0.4,
    memory_only: Annotated[bool, typer.Option("--memory-only", help="With --on: do not count tokens.")] = False,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Devices that share the work (default: those of --on, or 1).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the samples, rows and tokens that a run will compute; with --on, its memory, hours and strategy too.

    The tokens are prepared if they are not there yet; ``sft`` with the same recipe takes them as they are. Where the
    data files are missing, --on gives the memory alone.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path, overrides or ())
    if on is not None:
        if ranks is not None:
            raise UserError("is how many GPUs --on has", where="--ranks", fix="leave it out")
        gpus, device = parse_hardware(on)
        _on_hardware(loaded, path, gpus, device, nodes, mfu=mfu, memory_only=memory_only, as_json=as_json)
        return
    if memory_only or nodes > 1:
        raise UserError("memory depends on the GPUs", where="plan", fix="say which, such as --on 4xh100")
    check_files(loaded, where=str(path))
    counted = _counted(*_planned_run(loaded), ranks or 1)
    if as_json:
        print_json(counted)
    else:
        _show(loaded.name, counted)


def _planned_run(recipe: SftRecipe) -> tuple[RunPlan, RowLayout]:
    from txagent_train.models.shape import read_shape
    from txagent_train.sft.layout import RowLayout
    from txagent_train.sft.plan import plan_run
    from txagent_train.sft.prepare import Preparation
    from txagent_train.sft.rendering import renderer_for

    layout = RowLayout.of(recipe, read_shape(recipe.model.name_or_path, recipe.model.revision))
    preparation = Preparation.of(recipe, renderer_for(recipe.model, recipe.wire, recipe.seed))
    return plan_run(recipe, preparation), layout


def _counted(run: RunPlan, layout: RowLayout, ranks: int) -> JsonObject:
    from txagent_train.sft.token_plan import TokenPlan

    return TokenPlan.of(run, layout, ranks=ranks).to_json()


def _on_hardware(
    recipe: SftRecipe,
    path: Path,
    gpus: int,
    device: Device,
    nodes: int,
    *,
    mfu: float,
    memory_only: bool,
    as_json: bool,
) -> None:
    from txagent_train.cli import planning

    planned = planning.HardwarePlan.of(recipe, gpus, device, nodes)
    found: JsonObject = {"memory": planned.to_json()}
    if not memory_only and _has_data(recipe, path):
        run, layout = _planned_run(recipe)
        counted = _counted(run, layout, planned.hardware.gpus)
        work = planning.work_of(recipe, planned, run, layout, counted["total"])
        found = counted | found | {"time": planning.time_json(work, planned, mfu)}
    if as_json:
        print_json(found)
        return
    if "total" in found:
        _show(recipe.name, found)
    planning.show_memory(recipe.name, planned)
    if "time" in found:
        planning.show_time(found["time"], planned)


def _has_data(recipe: SftRecipe, path: Path) -> bool:
    """Whether the files of the recipe are there; where not, says on stderr what is not counted for that."""
    try:
        check_files(recipe, where=str(path))
    except RecipeError as error:
        print(f"tokens and hours are not counted: {error}", file=sys.stderr)
        return False
    return True


def _show(name: str, counted: JsonObject) -> None:
    """One column for each epoch, and one for the run."""
    kind = f"tries, up to {counted['row_tokens']:,} tokens a row" if counted["packing"] == "trie" else "none"
    ranks = f"{counted['ranks']} rank" + ("" if counted["ranks"] == 1 else "s")
    out = Table(title=escape(f"{name}: packing {kind}, {ranks}"), title_justify="left")
    epochs = [] if len(counted["epochs"]) == 1 else counted["epochs"]
    for heading in ("", *(f"epoch {number + 1}" for number in range(len(epochs))), "whole run"):
        out.add_column(heading, justify="right" if heading else "left")
    for key, words in WORDS.items():
        out.add_row(words, *(_number(column[key]) for column in (*epochs, counted["total"])))
    Console().print(out)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
