from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from txagent_train.core.errors import RunDirError
from txagent_train.sft.checkpoints import (
    aside_path,
    checkpoint_path,
    drop_later,
    newest_checkpoint,
    problem_of,
    prune,
    publish,
    step_of,
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
    assert newest_checkpoint(tmp_path / "absent", steps=10, shapes=None) is None
    with pytest.raises(RunDirError):
        step_of(tmp_path / "step-x")


def test_publishing_replaces_an_earlier_attempt(tmp_path: Path) -> None:
    final = write(checkpoint_path(tmp_path, 5), "old")
    publish(write(aside_path(final), "new"), final)
    assert (final / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["step-5"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660)])
def test_what_is_published_is_as_readable_as_any_new_file(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        aside = write(aside_path(checkpoint_path(tmp_path, 5)))
        (aside / "inner").mkdir()
        for path in (aside / "model.safetensors", aside / "inner" / "file"):
            path.touch(mode=0o600)
        publish(aside, checkpoint_path(tmp_path, 5))
    finally:
        os.umask(before)
    files = [path for path in checkpoint_path(tmp_path, 5).rglob("*") if path.is_file()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [mode] * 3


def test_a_checkpoint_that_is_gone_is_told_from_what_is_none(tmp_path: Path) -> None:
    for step in (4, 10):
        write(checkpoint_path(tmp_path, step))
    with pytest.raises(RunDirError, match=r"step-2: there is no such checkpoint\n.*there are: step-4, step-10"):
        step_of(checkpoint_path(tmp_path, 2))
    with pytest.raises(RunDirError, match="not a checkpoint"):
        step_of(tmp_path / "model")


def test_pruning_keeps_the_last(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        write(checkpoint_path(tmp_path, step))
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-10", "step-3"]


SHAPES = {"layer.lora_A.weight": (2, 3)}


def checkpoint(directory: Path, step: int) -> Path:
    """A checkpoint with all that a resume needs."""
    folder = checkpoint_path(directory, step)
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({"value": torch.ones(9)}, folder / name)
    save_file({"layer.lora_A.weight": torch.ones(2, 3)}, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    "name", ["trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "adapter_model.safetensors"]
)
@pytest.mark.parametrize("fault", ["absent", "torn"])
def test_a_checkpoint_that_is_not_whole_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, fault: str
) -> None:
    whole, torn = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4)
    assert problem_of(torn, steps=4, shapes=SHAPES) is None
    file = torn / name
    content = file.read_bytes()
    file.unlink()
    if fault == "torn":
        file.write_bytes(content[:-9])
    assert problem_of(torn, steps=4, shapes=SHAPES) is not None
    assert newest_checkpoint(tmp_path, steps=4, shapes=SHAPES) == whole
    assert "step-4 is passed over" in caplog.text


def test_a_checkpoint_of_another_run_is_passed_over(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 4)
    assert "only 3 steps" in str(problem_of(folder, steps=3, shapes=None))
    assert "another shape" in str(problem_of(folder, steps=4, shapes={"layer.lora_A.weight": (2, 4)}))
    assert "missing" in str(problem_of(folder, steps=4, shapes={"other": (1,)}))


def test_later_checkpoints_are_dropped(tmp_path: Path) -> None:
    for step in (2, 4, 10):
        write(checkpoint_path(tmp_path, step))
    drop_later(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-4"]
