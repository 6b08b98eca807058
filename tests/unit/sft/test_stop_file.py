"""A run that a file stops, as a batch script does before its time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_training import run_recipe, save_tiny_model
from txagent_train.core.records import JsonObject
from txagent_train.sft.run import run_sft
from txagent_train.sft.trainer import STOP_FILE
from txagent_train.tracking.run_dir import RunDir


def test_the_step_is_finished_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = tmp_path / "stop"
    monkeypatch.setenv(STOP_FILE, str(stop))
    recipe = run_recipe(tmp_path, model=save_tiny_model(tmp_path / "model"), train={"save_every": 100})

    def ask(record: JsonObject) -> None:
        if record["kind"] == "start":
            stop.touch()

    with pytest.raises(KeyboardInterrupt, match="after step 1; its checkpoint is saved"):
        run_sft(recipe, on_record=ask)
    assert RunDir.load(recipe.output_dir).read_manifest()["state"] == "interrupted"
    stop.unlink()
    assert run_sft(recipe).steps == 3
