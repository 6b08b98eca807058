from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from txagent_train.cli.data import app
from txagent_train.config.loading import load_recipe
from txagent_train.core.errors import UserError

RUNNER = CliRunner()
SETTINGS = """
model_name_or_path: Qwen/Qwen3-8B
trust_remote_code: true
finetuning_type: lora
dataset: greetings
dataset_dir: .
template: qwen3
output_dir: saves/x
learning_rate: 1.0e-4
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    rows = [{"instruction": "Greet.", "input": "", "output": "Hello."}, {"instruction": "Greet.", "output": None}]
    (tmp_path / "greetings.json").write_text(json.dumps(rows))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"greetings": {"file_name": "greetings.json"}}))
    path = tmp_path / "train.yaml"
    path.write_text(SETTINGS)
    return path


@pytest.mark.parametrize("format", [["--format", "llamafactory"], []])
def test_a_run_is_imported_with_its_recipe(settings: Path, format: list[str]) -> None:
    out = settings.parent / "traces.jsonl"
    shown = RUNNER.invoke(app, ["import", str(settings), "-o", str(out), *format], catch_exceptions=False).stdout
    assert "read 2, accepted 1 (1 chat)" in shown and "empty_answer" in shown
    assert "trust_remote_code: no code of a model repository is ever executed" in shown
    recipe = load_recipe(settings.parent / "traces.recipe.yaml")
    assert (recipe.train.learning_rate, recipe.data.sources[0].path, recipe.data.sources[0].kind) == (1e-4, out, "chat")


def test_the_report_as_json(settings: Path) -> None:
    arguments = ["import", str(settings), "-o", str(settings.parent / "traces.jsonl"), "--json"]
    report = json.loads(RUNNER.invoke(app, arguments, catch_exceptions=False).stdout)
    assert (report["training"]["accepted"], report["datasets"]) == (1, ["greetings"])
    assert "cutoff_len" in report["notes"]


def test_which_turns_are_trained_on_is_said_by_the_settings(settings: Path) -> None:
    arguments = ["import", str(settings), "-o", str(settings.parent / "traces.jsonl"), "--supervise", "last"]
    assert isinstance(RUNNER.invoke(app, arguments).exception, UserError)
