"""Two processes (DDP over gloo on CPUs) train as one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.tiny_training import run_recipe, save_tiny_model
from txagent_train.sft.run import run_sft
from txagent_train.tracking.metrics import read_metrics


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
        save_tiny_model(folder / "model")
    run_sft(run_recipe(alone, model=alone / "model"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "-m", "tests.support.run_tiny", str(together)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    records = [read_metrics(folder / "run" / "metrics.jsonl").records for folder in (alone, together)]
    assert records[1][0]["strategy"] == "MULTI_CPU" and records[1][0]["world_size"] == 2
    curves = [[item for item in found if item["kind"] == "train"] for found in records]
    assert len(curves[0]) == len(curves[1]) == 3
    for one, two in zip(*curves, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-5)
        assert two["supervised_tokens"] == one["supervised_tokens"]
        assert two["loss_by_source"] == pytest.approx(one["loss_by_source"], rel=1e-6)
        assert two["tokens"] == one["tokens"]
    tensors, others = (
        load_file(folder / "run" / "model" / "adapter_model.safetensors") for folder in (alone, together)
    )
    for name, tensor in tensors.items():
        torch.testing.assert_close(others[name], tensor, rtol=0, atol=1e-5)
