"""``txagent-train validate``: every problem of a recipe at once, before anything runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.config.loading import load_recipe, to_yaml
from txagent_train.config.paths import check_files
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import RecipeError, UserError
from txagent_train.core.records import JsonObject


@dataclass(frozen=True, slots=True)
class Checked:
    """What came out for one recipe: ``resolved`` is None where it does not load."""

    path: str
    resolved: SftRecipe | None
    error: RecipeError | None

    def to_json(self, *, show: bool) -> JsonObject:
        row: JsonObject = {"recipe": self.path, "problems": list(self.error.problems) if self.error else []}
        if show:
            row["resolved"] = self.resolved.model_dump(mode="json") if self.resolved else None
        return row


def validate(
    recipes: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE... [KEY=VALUE]...", help="Recipe files or names of shipped ones; overrides."),
    ],
    show: Annotated[bool, typer.Option("--show", help="Print the resolved recipes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Check recipes and the files they name; report all problems at once."""
    overrides = [text for text in recipes if "=" in text and not os.path.exists(text)]
    paths = [find_recipe(text) for text in recipes if text not in overrides]
    if not paths:
        raise UserError("only overrides were given", where="validate", fix="name a recipe before them")
    checked = [_check(path, overrides) for path in paths]
    all_right = all(item.error is None for item in checked)
    if as_json:
        print(json.dumps({"ok": all_right, "recipes": [item.to_json(show=show) for item in checked]}, indent=2))
    else:
        for item in checked:
            _print(item, show=show)
    if not all_right:
        raise typer.Exit(2)


def _check(path: Path, overrides: Sequence[str]) -> Checked:
    recipe = None
    try:
        recipe = load_recipe(path, overrides)
        check_files(recipe, where=str(path))
    except RecipeError as error:
        return Checked(str(path), recipe, error)
    return Checked(str(path), recipe, None)


def _print(item: Checked, *, show: bool) -> None:
    """The resolved recipe is a YAML document of its own, so that the output can be kept as a file."""
    if show and item.resolved:
        print(f"---\n# {item.path}, resolved\n{to_yaml(item.resolved)}", end="")
    elif item.error is None:
        print(f"{item.path}: valid")
    if item.error:
        print(f"error: {item.error}", file=sys.stderr)
