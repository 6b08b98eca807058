"""``txagent-train plan``: what a run will compute, before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from txagent_train.cli.data.shared import AsJson, print_json
from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.config.shipped import find_recipe
from txagent_train.core.records import JsonObject

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
    ranks: Annotated[int, typer.Option(min=1, help="Devices that share the work.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Count the samples, rows and tokens that a run will compute.

    The tokens are prepared if they are not there yet; ``sft`` with the same recipe takes them as they are.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path, overrides or ())
    check_files(loaded, where=str(path))
    from txagent_train.models.shape import read_shape
    from txagent_train.sft.layout import RowLayout
    from txagent_train.sft.plan import plan_run
    from txagent_train.sft.prepare import Preparation
    from txagent_train.sft.rendering import renderer_for
    from txagent_train.sft.token_plan import TokenPlan

    layout = RowLayout.of(loaded, read_shape(loaded.model.name_or_path, loaded.model.revision))
    preparation = Preparation.of(loaded, renderer_for(loaded.model, loaded.wire, loaded.seed))
    counted = TokenPlan.of(plan_run(loaded, preparation), layout, ranks=ranks).to_json()
    if as_json:
        print_json(counted)
        return
    _show(loaded.name, counted)


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
