from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.conftest import SMALLEST, Load
from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.core.errors import RecipeError


@pytest.fixture
def working_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_data_is_found_beside_the_recipe_then_in_the_working_directory(
    load: Load, tmp_path: Path, working_dir: Path
) -> None:
    assert load().data.sources[0].path == working_dir / "train.jsonl"
    (working_dir / "train.jsonl").touch()
    assert load().data.sources[0].path == working_dir / "train.jsonl"
    (tmp_path / "train.jsonl").touch()
    assert load().data.sources[0].path == tmp_path / "train.jsonl"


def test_a_path_belongs_to_the_file_that_names_it(tmp_path: Path, working_dir: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "base.yaml").write_text(SMALLEST)
    (base / "train.jsonl").touch()
    (tmp_path / "top.yaml").write_text("extends: base/base.yaml\n")
    assert load_recipe(tmp_path / "top.yaml").data.sources[0].path == base / "train.jsonl"


def test_an_override_is_relative_to_the_working_directory(load: Load, tmp_path: Path, working_dir: Path) -> None:
    (tmp_path / "mine.jsonl").touch()
    (working_dir / "mine.jsonl").touch()
    recipe = load(overrides=["data.sources.0.path=mine.jsonl"])
    assert recipe.data.sources[0].path == working_dir / "mine.jsonl"


def test_a_model_name_is_a_path_only_where_there_is_such_a_folder(
    load: Load, tmp_path: Path, working_dir: Path
) -> None:
    override = ["model.name_or_path=org/model"]
    assert load(overrides=override).model.name_or_path == "org/model"
    (working_dir / "org/model").mkdir(parents=True)
    assert load(overrides=override).model.name_or_path == str(working_dir / "org/model")


def test_check_files_names_all_that_is_missing(load: Load, tmp_path: Path, working_dir: Path) -> None:
    recipe = load(
        "adapter: {init_from: start}",
        overrides=[
            "data.eval=[{path: held.jsonl}]",
            "model.name_or_path=./nowhere",
            "data.augment={toolbox: tools.json, rewrites: more.jsonl}",
        ],
    )
    with pytest.raises(RecipeError) as caught:
        check_files(recipe, where="recipe.yaml")
    train, held = working_dir / "train.jsonl", working_dir / "held.jsonl"
    assert list(caught.value.problems) == [
        f"data.sources.0.path: no such file: {train}; put it there, or set data.sources.0.path=FILE",
        f"data.eval.0.path: no such file: {held}; put it there, or set data.eval.0.path=FILE",
        f"data.augment.toolbox: no such file: {working_dir / 'tools.json'}",
        f"data.augment.rewrites: no such file: {working_dir / 'more.jsonl'}",
        f"adapter.init_from: no adapter (adapter_config.json) in {working_dir / 'start'}",
        "model.name_or_path: no such folder: ./nowhere",
    ]
    train.touch()
    check_files(load())


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "train-00000.parquet", "state.json"])
def test_a_folder_is_a_source_where_it_holds_a_data_set(load: Load, working_dir: Path, name: str) -> None:
    folder = working_dir / "train.jsonl"
    folder.mkdir()
    with pytest.raises(RecipeError, match=r"data\.sources\.0\.path: this is a folder without a data set"):
        check_files(load())
    (folder / name).touch()
    check_files(load())
