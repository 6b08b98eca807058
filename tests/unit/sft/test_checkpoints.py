from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from txagent_train.core.errors import EnvironmentFailure, RunDirError
from txagent_train.sft.checkpoints import (
    aside_path,
    checkpoint_path,
    newest_checkpoint,
    prune,
    publish,
    step_of,
    verify_saved,
    whole_checkpoints,
)


def write(directory: Path, text: str = "x") -> Path:
    directory.mkdir(parents=True)
    (directory / "file").write_text(text)
    return directory


def test_only_whole_checkpoints_are_seen_and_the_newest_by_number(tmp_path: Path) -> None:
    for name in ("step-9", "step-10", ".step-11.aside", "step-x", ".step-3.old"):
        write(tmp_path / name)
    (tmp_path / "step-99").write_text("a file, not a folder")
    assert [path.name for path in whole_checkpoints(tmp_path)] == ["step-9", "step-10"]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None and step_of(newest) == 10
    assert newest_checkpoint(tmp_path / "absent") is None
    with pytest.raises(RunDirError):
        step_of(tmp_path / "step-x")


def test_publishing_replaces_an_earlier_attempt(tmp_path: Path) -> None:
    final = write(checkpoint_path(tmp_path, 5), "old")
    publish(write(aside_path(final), "new"), final)
    assert (final / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["step-5"]


def test_pruning_keeps_the_last(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        write(checkpoint_path(tmp_path, step))
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-3"]


def adapter() -> dict[str, torch.Tensor]:
    return {"layer.lora_A.weight": torch.randn(2, 3), "layer.lora_B.weight": torch.randn(3, 2)}


def test_a_faithful_save_passes(tmp_path: Path) -> None:
    tensors = adapter()
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    verify_saved(tmp_path, tensors, trained=True)


@pytest.mark.parametrize("fault", ["value", "missing", "extra", "shape", "dtype", "empty", "absent"])
def test_a_tampered_save_is_caught(tmp_path: Path, fault: str) -> None:
    tensors = adapter()
    saved = {name: tensor.clone() for name, tensor in tensors.items()}
    if fault == "value":
        saved["layer.lora_B.weight"][1, 1] += 1e-6
    elif fault == "missing":
        del saved["layer.lora_A.weight"]
    elif fault == "extra":
        saved["other"] = torch.zeros(1)
    elif fault == "shape":
        saved["layer.lora_A.weight"] = torch.zeros(3, 2)
    elif fault == "dtype":
        saved["layer.lora_A.weight"] = saved["layer.lora_A.weight"].double()
    elif fault == "empty":
        saved = {}
    if fault != "absent":
        save_file(saved, tmp_path / "adapter_model.safetensors")
    with pytest.raises(EnvironmentFailure, match="not what was trained"):
        verify_saved(tmp_path, tensors, trained=True)


def test_an_adapter_that_adds_nothing_is_caught_once_training_began(tmp_path: Path) -> None:
    tensors = adapter() | {"layer.lora_B.weight": torch.zeros(3, 2)}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    verify_saved(tmp_path, tensors, trained=False)
    with pytest.raises(EnvironmentFailure, match="adds nothing"):
        verify_saved(tmp_path, tensors, trained=True)
