"""The recipes, and other readable files, that come with the package."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from txagent_train.core.errors import UserError

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped_folder(name: str) -> Path:
    """A folder such as ``recipes``: a wheel has it inside (pyproject.toml), a checkout beside the package."""
    inside = _PACKAGE / f"_{name}"
    return inside if inside.is_dir() else _PACKAGE.parent / name


def shipped_recipes() -> list[str]:
    """Names of the shipped recipes, without ``.yaml``."""
    return sorted(path.stem for path in shipped_folder("recipes").glob("*.yaml"))


def shipped_recipe(name: str) -> Path:
    """The file of a shipped recipe.

    Raises:
        UserError: there is none of that name.
    """
    if name not in shipped_recipes():
        close = get_close_matches(name, shipped_recipes(), n=1)
        fix = f"did you mean {close[0]}?" if close else f"shipped recipes: {', '.join(shipped_recipes())}"
        raise UserError("neither a recipe file nor the name of a shipped recipe", where=name, fix=fix)
    return shipped_folder("recipes") / f"{name}.yaml"


def find_recipe(text: str) -> Path:
    """The recipe a user means: a file, or else the name of a shipped one (with or without ``.yaml``).

    Raises:
        UserError: it is neither.
    """
    # os.path.exists answers where Path.exists raises: for a name that is too long to be one.
    return Path(text) if os.path.exists(text) else shipped_recipe(text.removesuffix(".yaml"))
