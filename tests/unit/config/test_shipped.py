from __future__ import annotations

from pathlib import Path

import pytest

from txagent_train.config.loading import load_recipe
from txagent_train.config.shipped import find_recipe, shipped_recipe, shipped_recipes
from txagent_train.core.errors import UserError


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_loads_and_keeps_its_promises(name: str) -> None:
    recipe = load_recipe(shipped_recipe(name))
    assert recipe.name == name
    assert recipe.output_dir.parts[:2] == ("runs", name)
    # With dropout, the loss would change with the number of devices and of rows in a forward pass.
    assert recipe.adapter.lora.lora_dropout == 0.0
    assert recipe.data.overlong == "error"


def test_the_recipes_that_are_promised_are_there() -> None:
    assert set(shipped_recipes()) >= {
        "quickstart",
        "txagent-llama3.1-8b-lora",
        "txagent-llama3.1-8b-qlora",
        "athena-qwen3-8b",
        "biotool-qwen3-4b-lora",
        "biotool-qwen3-4b-full",
        "biotool-llama3.1-8b-lora",
        "biotool-qwen2.5-7b-lora",
        "biotool-qwen3-8b-lora",
    }


def test_biotool_has_the_settings_of_its_paper() -> None:
    recipe = load_recipe(shipped_recipe("biotool-llama3.1-8b-lora"))
    assert (recipe.adapter.lora.r, recipe.adapter.lora.lora_alpha) == (8, 16)
    train = recipe.train
    assert (train.learning_rate, train.epochs, train.traces_per_step, train.warmup_ratio) == (2e-5, 3, 16, 0.1)
    assert load_recipe(shipped_recipe("biotool-qwen3-4b-full")).adapter.method == "full"


def test_a_recipe_is_found_by_path_or_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_recipe("quickstart") == find_recipe("quickstart.yaml") == shipped_recipe("quickstart")
    monkeypatch.chdir(tmp_path)
    Path("quickstart.yaml").touch()
    assert find_recipe("quickstart.yaml") == Path("quickstart.yaml")
    with pytest.raises(UserError, match="did you mean quickstart"):
        find_recipe("quikstart")
