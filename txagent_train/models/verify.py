"""Proof that a folder of safetensors holds the tensors in memory, and that a model holds a folder's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from txagent_train.core.errors import EnvironmentFailure


def verify_saved(directory: Path, expected: Mapping[str, Tensor], *, trained: bool, same_dtype: bool = True) -> None:
    """Reopen the safetensors files of a folder and compare every tensor with the one in memory.

    Args:
        expected: tensors by their name in the file.
        trained: training has begun, so that the B matrices of an adapter cannot all be zero.
        same_dtype: the file must have the dtype in memory; else its values are compared in that dtype.

    Raises:
        EnvironmentFailure: a name, shape, dtype or value differs, or the adapter holds no training.
    """
    seen: set[str] = set()
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                saved, kept = file.get_tensor(name), expected.get(name)
                if kept is None:
                    raise _mismatch(path, f"has the tensor {name}, which was not trained")
                saved = saved if same_dtype else saved.to(kept.dtype)
                if saved.shape != kept.shape or saved.dtype != kept.dtype:
                    raise _mismatch(path, f"holds {name} as {_describe(saved)} instead of {_describe(kept)}")
                if not torch.equal(saved, kept.detach().to("cpu")):
                    raise _mismatch(path, f"holds other values for {name}")
                seen.add(name)
    missing = sorted(set(expected) - seen)
    if missing:
        raise _mismatch(directory, f"lacks {len(missing)} tensors, the first is {missing[0]}")
    second_factors = [tensor for name, tensor in expected.items() if ".lora_B." in name]
    if trained and second_factors and not any(bool(tensor.any()) for tensor in second_factors):
        raise _mismatch(directory, "is an adapter that adds nothing: all its B matrices are zero")


def without_tied(model: PreTrainedModel, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model as its file holds them: those tied to another one are left out."""
    return {name: tensor for name, tensor in tensors.items() if name not in (model.all_tied_weights_keys or ())}


def _describe(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"


def _mismatch(path: Path, what: str) -> EnvironmentFailure:
    return EnvironmentFailure(f"what was saved is not what was trained: {path} {what}")
