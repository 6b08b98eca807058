"""Checkpoints: folders ``step-N`` that appear whole, and proof that what was saved is what was trained.

A checkpoint is written to ``.step-N.aside`` and renamed when it is complete and verified; a folder under its final
name is therefore whole, and whatever a killed process leaves behind is never taken for one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from txagent_train.core.errors import EnvironmentFailure, RunDirError

_STEP = re.compile(r"step-(\d+)")


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / f"step-{step}"


def aside_path(final: Path) -> Path:
    """Where ``final`` is written before it is renamed."""
    return final.with_name(f".{final.name}.aside")


def step_of(checkpoint: Path) -> int:
    """The optimizer step of a checkpoint.

    Raises:
        RunDirError: the folder is not called ``step-N``.
    """
    match = _STEP.fullmatch(checkpoint.name)
    if match is None or not checkpoint.is_dir():
        raise RunDirError("not a checkpoint (a folder called step-N)", where=str(checkpoint))
    return int(match[1])


def whole_checkpoints(directory: Path) -> list[Path]:
    """The whole checkpoints in a folder, oldest first."""
    if not directory.is_dir():
        return []
    found = [entry for entry in directory.iterdir() if entry.is_dir() and _STEP.fullmatch(entry.name)]
    return sorted(found, key=step_of)


def newest_checkpoint(directory: Path) -> Path | None:
    """The whole checkpoint of the latest step, or None."""
    return next(reversed(whole_checkpoints(directory)), None)


def publish(aside: Path, final: Path) -> None:
    """Rename a finished folder to its final name, replacing what an earlier attempt left there."""
    for path in aside.rglob("*"):
        if path.is_file():
            _sync(path)
    _sync(aside)
    old = final.with_name(f".{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        os.rename(final, old)
    os.rename(aside, final)
    _sync(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prune(directory: Path, keep_last: int) -> None:
    """Delete all but the newest checkpoints."""
    for checkpoint in whole_checkpoints(directory)[:-keep_last]:
        # Out of sight first: a deletion that is interrupted must not leave a torn step-N.
        doomed = checkpoint.with_name(f".{checkpoint.name}.old")
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(checkpoint, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


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
