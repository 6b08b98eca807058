from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from txagent_train.config.loading import load_recipe
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import RecipeError

SMALLEST = """\
kind: sft
name: small
output_dir: runs/small
model: {name_or_path: embedded:smollm2-135m-instruct}
data:
  sources: [{path: train.jsonl}]
"""

Load = Callable[..., SftRecipe]
Problems = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a recipe text: ``SMALLEST`` and what is given below it."""

    def call(more: str = "", *, overrides: Sequence[str] = (), whole: str | None = None) -> SftRecipe:
        path = tmp_path / "recipe.yaml"
        path.write_text(SMALLEST + more if whole is None else whole, encoding="utf-8")
        return load_recipe(path, overrides)

    return call


@pytest.fixture
def problems(load: Load) -> Problems:
    """The problems of a recipe text that must not load."""

    def call(more: str = "", *, overrides: Sequence[str] = (), whole: str | None = None) -> list[str]:
        with pytest.raises(RecipeError) as caught:
            load(more, overrides=overrides, whole=whole)
        return list(caught.value.problems)

    return call
