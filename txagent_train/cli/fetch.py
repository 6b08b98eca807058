"""``txagent-train fetch``: a recipe's model on this machine, and the proof that it loads without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import AsJson, print_json
from txagent_train.config.loading import load_recipe
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import ModelError
from txagent_train.core.records import JsonObject
from txagent_train.models.embedded import is_embedded


def fetch(
    recipe: Annotated[
        str, typer.Argument(help="The recipe: a file, or the name of a shipped one.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.", show_default=False)
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder for the files, instead of the hub's cache.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stage the model and tokenizer at one commit, then load them with the hub switched off.

    For compute nodes without a network: run it where there is one, with HF_HOME on a file system that both see. A
    local folder and an embedded model are only loaded.
    """
    from txagent_train.models.fetch import prove, stage

    model = load_recipe(find_recipe(recipe), overrides or ()).model
    name, revision = model.name_or_path, model.revision
    report: JsonObject = {}
    if not is_embedded(name) and not os.path.isdir(name):
        if name.startswith(("/", ".", "~")):
            raise ModelError("no such folder", where=name)
        staged = stage(name, revision, to)
        report["staged"] = staged.to_json()
        print(
            f"{name} at {staged.commit}: {len(staged.files)} files, {staged.size / 1e9:.2f} GB, in {staged.folder}",
            file=sys.stderr,
        )
        name, revision = (name, staged.commit) if to is None else (str(staged.folder), None)
    report["loaded"] = prove(name, revision)
    report["recipe"] = {"name_or_path": name, "revision": revision}
    if as_json:
        print_json(report)
        return
    found = report["loaded"]
    print(
        f"{name} loads with the hub switched off: {found['parameters']:,} parameters ({found['model_type']}), "
        f"{found['vocabulary']:,} tokens"
    )
    if (name, revision) != (model.name_or_path, model.revision):
        print("Write into the recipe, so that every run has these files:")
        print(f"model:\n  name_or_path: {name}\n  revision: {'null' if revision is None else revision}")
