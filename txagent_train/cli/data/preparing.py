"""``txagent-train data prepare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import AsJson, print_json
from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.config.shipped import find_recipe


def prepare(
    recipe: Annotated[str, typer.Argument(help="The recipe (kind: sft): a file, or the name of a shipped one.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the tokens of every epoch ahead of the run, on a node without a GPU.

    ``sft`` with the same recipe takes them as they are. It is safe to run beside others that need the same rows, and to
    stop and run again: what is done is kept.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path, overrides or ())
    check_files(loaded, where=str(path))
    from txagent_train.sft.prepare import Preparation, describe
    from txagent_train.sft.rendering import renderer_for

    preparation = Preparation.of(loaded, renderer_for(loaded.model, loaded.wire, loaded.seed))
    evaluation = preparation.evaluation()
    train = loaded.train
    epochs = preparation.epochs(train.epochs, traces_per_step=train.traces_per_step, max_steps=train.max_steps)
    made = [*epochs, *([] if evaluation is None else [evaluation])]
    if as_json:
        print_json({"prepared": [{"directory": str(rows.directory), **rows.report.to_json()} for rows in made]})
        return
    for rows in made:
        typer.echo(f"{_shown(rows.directory)}: {describe(rows.report)}")


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
