from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.tiny_training import make_trainer, prepare_rows, random_traces, tiny_recipe
from txagent_train.core.errors import EnvironmentFailure, RunDirError, UserError


def test_a_checkpoint_folder_that_cannot_be_made_is_a_failure_of_the_machine(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(4))
    trainer = make_trainer(tiny_recipe(tmp_path), [rows], [])
    trainer.checkpoints = tmp_path / "file"
    trainer.checkpoints.touch()
    with pytest.raises(EnvironmentFailure, match="step-1 could not be written"):
        trainer.train()


def test_rows_too_short_for_a_sample_are_refused_before_training(tmp_path: Path) -> None:
    short, long = (prepare_rows(tmp_path / f"rows-{count}", random_traces(count)) for count in (1, 40))
    assert short.report.longest < long.report.longest
    recipe = tiny_recipe(tmp_path, train={"row_tokens": short.report.longest})
    make_trainer(recipe, [short], [])
    with pytest.raises(UserError, match=rf"train.row_tokens: .* has {long.report.longest} tokens"):
        make_trainer(recipe, [short], [], eval_rows=long)


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth", "safetensors"])
def test_a_checkpoint_with_other_content_is_refused(tmp_path: Path, method: str, name: str) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(8))
    recipe = tiny_recipe(tmp_path, adapter={"method": method, "lora": {"r": 4}}, train={"save_every": 1})
    make_trainer(recipe, [rows], []).train()
    checkpoint = tmp_path / "checkpoints" / "step-1"
    if name == "safetensors":
        path = next(checkpoint.glob("*.safetensors"))
        path.write_bytes(path.read_bytes()[:-8])
    else:
        torch.save({"other": 1}, checkpoint / name)
    with pytest.raises(RunDirError, match="step-1: the checkpoint cannot be loaded"):
        make_trainer(recipe, [rows], []).train(resume_from_checkpoint=str(checkpoint))
