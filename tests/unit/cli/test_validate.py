from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from txagent_train.cli.app import app
from txagent_train.config.loading import load_recipe

RECIPE = """\
kind: sft
name: small
output_dir: runs/small
model: {name_or_path: embedded:smollm2-135m-instruct}
data:
  sources: [{path: train.jsonl}]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "train.jsonl").touch()
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_a_right_recipe(recipe: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(recipe), "train.epochs=3"])
    assert (result.exit_code, result.stdout) == (0, f"{recipe}: valid\n")


def test_show_prints_a_recipe_that_can_be_kept(recipe: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(recipe), "train.epochs=3", "--show"])
    assert result.exit_code == 0
    kept = tmp_path / "kept.yaml"
    kept.write_text(result.stdout)
    assert load_recipe(kept) == load_recipe(recipe, ["train.epochs=3"])


def test_a_wrong_and_a_right_recipe(recipe: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(RECIPE + "train: {epoch: 1}\n")
    result = CliRunner().invoke(app, ["validate", str(wrong), str(recipe)])
    assert result.exit_code == 2
    assert result.stdout == f"{recipe}: valid\n"
    assert result.stderr == (
        f"error: {wrong}: 1 problem in the recipe:\n  - train.epoch: unknown key (line 7); did you mean train.epochs?\n"
    )


def test_json(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").unlink()
    result = CliRunner().invoke(app, ["validate", str(recipe), "--json", "--show"])
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert report["ok"] is False
    (row,) = report["recipes"]
    assert row["recipe"] == str(recipe)
    assert row["problems"][0].startswith("data.sources.0.path: no such file")
    assert row["resolved"]["train"]["epochs"] == 1


def test_overrides_alone_are_no_recipe() -> None:
    result = CliRunner().invoke(app, ["validate", "train.epochs=3"])
    assert "name a recipe before them" in str(result.exception)
