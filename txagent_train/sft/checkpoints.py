"""Checkpoints: folders ``step-N`` that appear whole, and which of them to resume from.

A checkpoint is written to ``.step-N.aside`` and renamed when it is complete and verified; whatever a killed process
leaves behind is never taken for one. Copying and disks tear folders too, so a checkpoint is checked before it is
resumed from.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError, safe_open

from txagent_train.core.errors import EnvironmentFailure, RunDirError

_log = logging.getLogger(__name__)
_STEP = re.compile(r"step-(\d+)")


def checkpoint_path(directory: Path, step: int) -> Path:
    return directory / f"step-{step}"


def aside_path(final: Path) -> Path:
    """Where ``final`` is written before it is renamed."""
    return final.with_name(f".{final.name}.aside")


def step_of(checkpoint: Path) -> int:
    """The optimizer step of a checkpoint.

    Raises:
        RunDirError: the folder is not called ``step-N``, or is not there.
    """
    match = _STEP.fullmatch(checkpoint.name)
    if match is None:
        raise RunDirError("not a checkpoint (a folder called step-N)", where=str(checkpoint))
    if not checkpoint.is_dir():
        others = ", ".join(other.name for other in whole_checkpoints(checkpoint.parent))
        problem = "there is no such checkpoint"
        fix = f"there are: {others}; train.keep_last says how many are kept" if others else "--resume auto"
        raise RunDirError(problem, where=str(checkpoint), fix=fix)
    return int(match[1])


def whole_checkpoints(directory: Path) -> list[Path]:
    """The whole checkpoints in a folder, oldest first."""
    if not directory.is_dir():
        return []
    found = [entry for entry in directory.iterdir() if entry.is_dir() and _STEP.fullmatch(entry.name)]
    return sorted(found, key=step_of)


def newest_checkpoint(directory: Path, *, steps: int, shapes: Mapping[str, Sequence[int]] | None) -> Path | None:
    """The checkpoint of the latest step that can be resumed from, or None; those passed over are warned of."""
    for checkpoint in reversed(whole_checkpoints(directory)):
        problem = problem_of(checkpoint, steps=steps, shapes=shapes)
        if problem is None:
            return checkpoint
        _log.warning("%s is passed over: %s", checkpoint, problem)
    return None


def problem_of(checkpoint: Path, *, steps: int, shapes: Mapping[str, Sequence[int]] | None) -> str | None:
    """Why a checkpoint cannot be resumed from, or None.

    Args:
        steps: of the whole run.
        shapes: of the tensors to find, by their name in the file; None does not compare them (a sharded model).
    """
    step = step_of(checkpoint)
    if step > steps:
        return f"it is of step {step}, but the run has only {steps} steps"
    try:
        if json.loads((checkpoint / "trainer_state.json").read_bytes())["global_step"] != step:
            return "trainer_state.json is of another step"
    except (OSError, ValueError, KeyError, TypeError):
        return "trainer_state.json is missing or torn"
    return _state_problem(checkpoint) or _tensor_problem(checkpoint, shapes)


def _state_problem(checkpoint: Path) -> str | None:
    """The state of optimizer, schedule and random numbers; sharded optimizers are folders of their own."""
    deepspeed = any(checkpoint.glob("global_step*"))
    sharded = deepspeed or any(path.is_dir() for path in checkpoint.glob("optimizer*"))
    needed = [] if sharded else [["optimizer.pt", "optimizer.bin"]]
    needed += [] if deepspeed else [["scheduler.pt"]]
    needed += [[path.name] for path in checkpoint.glob("rng_state*.pth")] or [["rng_state.pth"]]
    for names in needed:
        if not any(zipfile.is_zipfile(checkpoint / name) for name in names):
            return f"{names[0]} is missing or torn"
    return None


def _tensor_problem(checkpoint: Path, shapes: Mapping[str, Sequence[int]] | None) -> str | None:
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                found |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            return f"{path.name} is torn: {error}"
    if not found:
        return "it holds no tensors"
    for name, shape in (shapes or {}).items():
        if found.get(name) != tuple(shape):
            return f"the tensor {name} is missing or of another shape"
    return None


@contextmanager
def reading_checkpoint(checkpoint: str | None) -> Iterator[None]:
    """What torch and peft make of a checkpoint that is damaged, or not of this run."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, KeyError, EOFError, OSError, UnpicklingError, SafetensorError) as error:
        raise RunDirError(f"the checkpoint cannot be loaded: {error}", where=str(checkpoint)) from error
    except EnvironmentFailure as error:
        raise RunDirError(f"the checkpoint does not fit the run: {error}", where=str(checkpoint)) from error


def drop_later(directory: Path, step: int) -> None:
    """Delete the checkpoints after a step, from which a run goes on: they are of a past that is written anew."""
    for checkpoint in reversed(whole_checkpoints(directory)):
        if step_of(checkpoint) > step:
            discard(checkpoint)


def publish(aside: Path, final: Path) -> None:
    """Rename a finished folder to its final name, replacing what an earlier attempt left there.

    Its files get the permissions that new files have: safetensors keeps its own from everybody else.
    """
    permissions = aside.stat().st_mode & 0o666  # a folder is made with 0o777 less the umask
    for path in aside.rglob("*"):
        if path.is_file():
            path.chmod(permissions)
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
        discard(checkpoint)


def discard(folder: Path) -> None:
    """Delete a folder."""
    # Out of sight first: a deletion that is interrupted must not leave a torn one.
    doomed = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)
