"""What is counted without weights is what real engines keep, to the byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_shapes import LORA, tiny_cases, tiny_shape
from txagent_train.launch.states import Engine, Setup, states
from txagent_train.models.parameters import Sizes, arithmetic

RANKS: dict[Engine, int] = {"single": 1, "ddp": 2, "fsdp2": 2, "zero3": 2}
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ACCELERATE_TORCH_DEVICE": "cpu", "DS_ACCELERATOR": "cpu"}


def measured(engine: Engine, out: Path) -> list[list[dict[str, int | str]]]:
    """The records of each rank."""
    ranks = RANKS[engine]
    start = [sys.executable, "-m"]
    if ranks > 1:
        start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    done = subprocess.run(
        [*start, "tests.distributed.measure_states", engine, str(out)],
        cwd=Path(__file__).parents[2],
        env=os.environ | _ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(Path(f"{out}-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", list(RANKS))
def test_counted_bytes_are_those_an_engine_keeps(engine: Engine, tmp_path: Path) -> None:
    found = measured(engine, tmp_path / "bytes")
    for (family, tied, method), *records in zip(tiny_cases(), *found, strict=True):
        config = tiny_shape(family, tied=tied)
        full = method == "full"
        parameters = arithmetic(config, None if full else LORA)
        setup = Setup(parameters, Sizes.of(config), full=full, compute_bytes=2)
        counted = states(setup, engine, ranks=RANKS[engine])
        for name in ("weights", "gradients", "optimizer"):
            # The first rank has most: its shards are whole, where the last one's may end before their padding.
            sizes = [record[name] for record in records]
            assert sizes[0] == max(sizes) == getattr(counted, name), (engine, family, tied, method, name)
