from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.tiny_training import recipe_file, save_tiny_model
from tests.unit.cli.test_app import run
from txagent_train.cli.app import app
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject
from txagent_train.models.loading import load_model

SHIPPED = "txagent-llama3.1-8b-lora"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six traces of two steps, two in an optimizer step."""
    folder = tmp_path_factory.mktemp("plan")
    return recipe_file(folder, model=save_tiny_model(folder / "model"))


def planned(recipe: Path | str, *arguments: str) -> JsonObject:
    done = CliRunner().invoke(app, ["plan", str(recipe), *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    out: JsonObject = json.loads(done.stdout)
    return out


def test_with_data_there_are_tokens_memory_and_hours(recipe: Path) -> None:
    found = planned(recipe, "--on", "2xh100")
    assert found["ranks"] == 2 and found["total"]["traces"] == 6
    model = load_model(str(recipe.parent / "model"))
    assert found["memory"]["parameters"]["total"] - found["memory"]["parameters"]["trainable"] == model.num_parameters()
    assert found["memory"]["recommendation"]["strategy"] == "ddp"
    time = found["time"]
    assert time["mfu"] == 0.4
    assert time["hours"] == pytest.approx(time["flops"]["total"] / (2 * 989e12 * 0.4) / 3600)
    assert planned(recipe, "--on", "2xh100", "--mfu", "0.2")["time"]["hours"] == pytest.approx(2 * time["hours"])
    full = planned(recipe, "--on", "2xh100", "adapter.method=full")["time"]
    assert full["flops"]["model"] > time["flops"]["model"]
    assert full["flops"]["attention"] == time["flops"]["attention"] > 0 == time["flops"]["recompute"]
    again = planned(recipe, "--on", "2xh100", "model.gradient_checkpointing=true")["time"]["flops"]["recompute"]
    assert 0 < again < time["flops"]["total"]


def test_pairs_are_the_same_however_tries_are_split_but_for_what_is_repeated(recipe: Path) -> None:
    tries = planned(recipe, "--on", "2xh100")["time"]["flops"]["attention"]
    alone = planned(recipe, "--on", "2xh100", "train.packing=none")["time"]["flops"]["attention"]
    assert 0 < tries < alone


def test_shipped_recipes_are_planned_without_data_network_or_torch() -> None:
    done = run("plan", SHIPPED, "--on", "4xh100", "--memory-only", "--json", probe=True)
    assert done.returncode == 0 and "imported: []" in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found["memory"]["parameters"] == {
        "total": 8_030_261_248 + 41_943_040,
        "trainable": 41_943_040,
        "per_layer": 218_112_000 + 41_943_040 // 32,
    }
    assert "known models" in found["memory"]["sizes_from"]
    assert "time" not in found and "total" not in found
    strategies = {(option["strategy"], option["checkpointing"]) for option in found["memory"]["options"]}
    assert len(strategies) == 8


def test_without_data_it_says_what_is_not_counted() -> None:
    done = run("plan", SHIPPED, "--on", "4xh100")
    assert done.returncode == 0, done.stderr
    assert "tokens and hours are not counted" in done.stderr and "no such file" in done.stderr
    assert "recommended: ddp" in done.stdout and "estimates" in done.stdout


def test_the_tables(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["plan", str(recipe), "--on", "1xl40s"], catch_exceptions=False).stdout
    assert "optimizer steps" in shown and "GiB on a GPU, 1 x l40s (44.4 GiB)" in shown
    assert "zero3_offload" in shown and "hours on 1 GPUs at 40% of 362 TFLOP/s" in shown
    assert "its config.json" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory-only"], "say which, such as --on 4xh100"),
        (["--on", "h100"], "such as 4xh100"),
        (["--on", "2xh100", "--ranks", "2"], "leave it out"),
    ],
)
def test_what_does_not_go_together(recipe: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        planned(recipe, *arguments)
