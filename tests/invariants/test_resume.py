"""A run that was killed and resumed ends in the same bits as one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import txagent_train.sft.trainer as trainer_module
from tests.support.tiny_training import run_recipe, save_tiny_model, small_traces, write_traces
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import RunDirError
from txagent_train.core.records import JsonObject
from txagent_train.sft.run import run_sft
from txagent_train.sft.trainer import TraceTrainer
from txagent_train.tracking.metrics import read_metrics
from txagent_train.tracking.run_dir import RunDir

STEPS = 6


class Killed(BaseException):
    """Stands in for a kill: nothing in the package catches it."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def recipe_in(folder: Path, model: Path, *, dropout: float = 0.0) -> SftRecipe:
    folder.mkdir(exist_ok=True)
    adapter = {"lora": {"r": 4, "lora_dropout": dropout}}
    return run_recipe(folder, model=model, train={"epochs": 2, "save_every": 2, "keep_last": 1}, adapter=adapter)


def final_state(recipe: SftRecipe) -> tuple[dict[str, torch.Tensor], list[tuple[int, float, float]]]:
    records = read_metrics(recipe.output_dir / "metrics.jsonl").records
    curve = [(item["step"], item["loss"], item["grad_norm"]) for item in records if item["kind"] == "train"]
    return load_file(recipe.output_dir / "model" / "adapter_model.safetensors"), curve


def assert_same_bits(one: SftRecipe, other: SftRecipe) -> None:
    (tensors, curve), (others, other_curve) = final_state(one), final_state(other)
    assert [step for step, _, _ in curve] == list(range(1, STEPS + 1))
    assert curve == other_curve
    assert tensors.keys() == others.keys()
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_killed_at_any_step_and_resumed(tmp_path: Path, model: Path, dropout: float) -> None:
    whole = recipe_in(tmp_path / "whole", model, dropout=dropout)
    run_sft(whole)
    for kill_at in range(1, STEPS + 1):
        recipe = recipe_in(tmp_path / f"killed-{kill_at}", model, dropout=dropout)

        def kill(record: JsonObject, at: int = kill_at) -> None:
            if record["kind"] == "train" and record["step"] == at:
                raise Killed

        with pytest.raises(Killed):
            run_sft(recipe, on_record=kill)
        run_sft(recipe)
        assert_same_bits(whole, recipe)


def test_killed_while_a_checkpoint_is_written(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, torn = recipe_in(tmp_path / "whole", model), recipe_in(tmp_path / "torn", model)
    run_sft(whole)

    def kill(aside: Path, final: Path) -> None:
        if final.name == "step-4":
            raise Killed

        publish(aside, final)

    publish = trainer_module.publish
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer_module, "publish", kill)
        run_sft(torn)
    left = sorted(path.name for path in (torn.output_dir / "checkpoints").iterdir())
    assert left == [".step-4.aside", "step-2"]
    run_sft(torn)
    assert_same_bits(whole, torn)
    assert [path.name for path in (torn.output_dir / "checkpoints").iterdir()] == ["step-6"]


def test_resuming_from_a_named_checkpoint(tmp_path: Path, model: Path) -> None:
    whole, again = recipe_in(tmp_path / "whole", model), recipe_in(tmp_path / "again", model)
    again = again.model_copy(update={"train": again.train.model_copy(update={"keep_last": 3})})
    run_sft(whole)
    run_sft(again)
    step_2 = again.output_dir / "checkpoints" / "step-2"

    def kill(record: JsonObject) -> None:
        if record["kind"] == "train" and record["step"] == 3:
            raise Killed

    with pytest.raises(Killed):
        run_sft(again, resume=step_2, on_record=kill)
    # The later checkpoints and the model are of a past that is written anew: nothing may go on from them.
    assert [path.name for path in step_2.parent.iterdir()] == ["step-2"] and not (again.output_dir / "model").exists()
    run_sft(again)
    assert_same_bits(whole, again)
    (step_2.parent / "step-4" / "optimizer.pt").unlink()
    with pytest.raises(RunDirError, match=r"step-4: cannot be resumed from: optimizer\.pt is missing"):
        run_sft(again, resume=step_2.parent / "step-4")
    assert RunDir.load(again.output_dir).read_manifest()["state"] == "finished"
    with pytest.raises(RunDirError, match="not a checkpoint of this run"):
        run_sft(again, resume=whole.output_dir / "checkpoints" / "step-6")


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole, torn = recipe_in(tmp_path / "whole", model), recipe_in(tmp_path / "torn", model)
    torn = torn.model_copy(update={"train": torn.train.model_copy(update={"keep_last": 3})})
    run_sft(whole)
    run_sft(torn)
    weights = torn.output_dir / "checkpoints" / "step-6" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    run_sft(torn)
    assert "step-6 is passed over: adapter_model.safetensors is torn" in caplog.text
    assert_same_bits(whole, torn)


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_a_stop_takes_effect_after_its_own_step_and_loses_no_record(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    def recipe_with_held_out(name: str) -> SftRecipe:
        (tmp_path / name).mkdir()
        held_out = write_traces(tmp_path / name / "held_out.jsonl", small_traces(2))
        data = {"eval": [{"path": str(held_out)}]}
        return run_recipe(tmp_path / name, model=model, data=data, train={"eval_every": 2, "save_every": None})

    def records_of(recipe: SftRecipe) -> list[tuple[str, int, float]]:
        records = read_metrics(recipe.output_dir / "metrics.jsonl").records
        return [(item["kind"], item["step"], item["loss"]) for item in records if item["kind"] != "start"]

    whole, stopped = recipe_with_held_out("whole"), recipe_with_held_out("stopped")
    run_sft(whole)
    step = TraceTrainer.training_step

    def step_and_stop(self: TraceTrainer, *arguments: Any) -> torch.Tensor:
        loss = step(self, *arguments)
        if self.state.global_step + 1 == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(TraceTrainer, "training_step", step_and_stop)
        if stop_at < 3:
            with pytest.raises(KeyboardInterrupt, match=f"after step {stop_at};"):
                run_sft(stopped)
        else:
            run_sft(stopped)  # it was the last step: the run is finished, with its evaluation
    if stop_at < 3:
        assert [path.name for path in (stopped.output_dir / "checkpoints").iterdir()] == [f"step-{stop_at}"]
        run_sft(stopped)
    assert records_of(stopped) == records_of(whole)
    assert [item[1] for item in records_of(whole) if item[0] == "eval"] == [0, 2, 3]


def test_another_recipe_does_not_resume(tmp_path: Path, model: Path) -> None:
    recipe = recipe_in(tmp_path / "run", model)
    run_sft(recipe)
    with pytest.raises(RunDirError, match=r"train\.learning_rate: 0\.01 -> 0\.1"):
        run_sft(recipe.model_copy(update={"train": recipe.train.model_copy(update={"learning_rate": 0.1})}))
    with pytest.raises(RunDirError, match="already holds the run"):
        run_sft(recipe, resume="never")
    # How rows are filled changes speed only.
    rows = {"packing": "none", "rows_per_forward": 2}
    run_sft(recipe.model_copy(update={"train": recipe.train.model_copy(update=rows)}))


def process(folder: Path, *arguments: int) -> int:
    command = [sys.executable, "-m", "tests.support.run_tiny", str(folder), *map(str, arguments)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    return done.returncode


@pytest.mark.slow
def test_a_process_that_is_killed_or_terminated_resumes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("whole", "killed", "terminated")]
    for folder in folders:
        folder.mkdir()
        save_tiny_model(folder / "model")
    whole, killed, terminated = folders
    assert process(whole) == 0
    assert process(killed, 2) == -signal.SIGKILL
    assert process(killed) == 0
    assert process(terminated, 0, 1) == 130
    assert RunDir.load(terminated / "run").read_manifest()["state"] == "interrupted"
    assert (terminated / "run" / "checkpoints" / "step-1").is_dir()
    assert process(terminated) == 0
    expected = load_file(whole / "run" / "model" / "adapter_model.safetensors")
    for folder in (killed, terminated):
        tensors = load_file(folder / "run" / "model" / "adapter_model.safetensors")
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)
        assert RunDir.load(folder / "run").read_manifest()["state"] == "finished"
