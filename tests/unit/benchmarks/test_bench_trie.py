"""The benchmark for one GPU, on a CPU with a tiny model: that it runs through, and that sides train on the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packing_arms import llama_config

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu" / "bench_trie.py"


@pytest.mark.slow
def test_every_side_runs_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(SCRIPT), "--shape", "tiny", "--device", "cpu", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    result = json.loads(out.read_text())
    gradients = result["gradients"]
    assert gradients["fp32_trie"] < 1e-5
    assert gradients["bf16_trie"] < 2 * gradients["bf16_one_by_one"]
    assert result["left_out"] == []
    for row in result["rows"].values():
        assert all("error" not in side and side["sample_tokens_per_s"] > 0 for side in row["sides"].values())
        assert row["token_ratio"] > 2.5 and "time_ratio_vs_dense_mask" in row


def test_the_shape_of_the_8b() -> None:
    class Tokenizer:
        def token_to_id(self, token: str) -> int:
            return 0

    config = llama_config(Tokenizer(), hidden=4096, layers=32, vocabulary=128256)
    shape = (config.intermediate_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    assert shape == (14336, 32, 8, 128)
