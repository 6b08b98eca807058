from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.tiny_training import run_recipe, save_tiny_model
from tests.unit.cli.test_app import run
from txagent_train.cli.app import app
from txagent_train.cli.plan import WORDS
from txagent_train.config.loading import load_recipe, to_yaml
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject
from txagent_train.sft.run import run_sft
from txagent_train.tracking.metrics import read_metrics


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six traces of two steps, two in an optimizer step, for two epochs."""
    folder = tmp_path_factory.mktemp("plan")
    made = run_recipe(folder, model=save_tiny_model(folder / "model"), train={"epochs": 2})
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(made.model_copy(update={"data": made.data.model_copy(update={"eval": ()})})))
    return path


def planned(recipe: Path, *arguments: str) -> JsonObject:
    done = CliRunner().invoke(app, ["plan", str(recipe), *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    out: JsonObject = json.loads(done.stdout)
    return out


def test_what_is_planned_is_what_a_run_states_and_computes(recipe: Path) -> None:
    total = planned(recipe)["total"]
    assert (total["steps"], total["traces"], total["samples"], total["rows"]) == (6, 12, 24, 6)
    assert total["sharing_ratio"] == total["naive"] / total["computed"] > 1.5
    result = run_sft(load_recipe(recipe))
    start, *records = read_metrics(result.run_dir / "metrics.jsonl").records
    steps = [record for record in records if record["kind"] == "train"]
    names = {"naive_tokens": "naive", "computed_tokens": "computed", "padding_tokens": "padding"}
    assert {key: start[key] for key in names} == {key: total[name] for key, name in names.items()}
    assert start["sharing_ratio"] == pytest.approx(total["sharing_ratio"], abs=1e-3)
    summed = {"tokens": "computed", "naive_tokens": "naive", "supervised_tokens": "supervised"}
    assert {key: sum(step[key] for step in steps) for key in summed} == {
        key: total[name] for key, name in summed.items()
    }


def test_ranks_and_rows(recipe: Path) -> None:
    whole, several = planned(recipe), planned(recipe, "--ranks", "4")
    assert (several["ranks"], several["total"]["rows"], several["total"]["fillers"]) == (4, 12, 12)
    assert several["total"]["computed"] == whole["total"]["computed"]
    with pytest.raises(UserError, match=r"train.row_tokens: the longest sample"):
        planned(recipe, "train.row_tokens=100")
    alone = planned(recipe, "train.packing=none")["total"]
    assert alone["computed"] == alone["naive"] == whole["total"]["naive"]
    longest = alone["longest_row"]
    split = planned(recipe, f"train.row_tokens={longest}")["total"]
    assert split["longest_row"] <= longest and split["split_tries"] > 0
    assert split["computed"] == whole["total"]["computed"] + split["repeated"]


def test_the_table_has_a_column_for_each_epoch(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["plan", str(recipe)], catch_exceptions=False).stdout
    assert "epoch 1" in shown and "epoch 2" in shown and "whole run" in shown
    assert "tries, up to 32,768 tokens a row, 1 rank" in shown
    assert all(words in shown for words in WORDS.values())
    one = CliRunner().invoke(app, ["plan", str(recipe), "train.max_steps=2"], catch_exceptions=False).stdout
    assert "epoch 1" not in one and "whole run" in one


def test_nothing_heavy_is_imported(recipe: Path) -> None:
    done = run("plan", str(recipe), probe=True)
    assert done.returncode == 0 and "imported: []" in done.stderr, done.stderr
