from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from txagent_train.core.errors import EnvironmentFailure
from txagent_train.models.verify import verify_saved


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
