"""The benchmark of tries against TRL: its sums, and a small run of all sides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_packing
import pytest

SCRIPT = Path(bench_packing.__file__)


def side(tokens: int, seconds: float = 9.0) -> dict[str, Any]:
    about = {"tokens": tokens, "padding": 0, "forwards": 1, "peak_mib": 1.0, "rest_mib": 2.0, "seconds": seconds}
    return about | {"gradient": [3.0, 4.0]}


def test_the_grid_has_every_cell_once() -> None:
    cells = bench_packing.grid()
    assert len(cells) == len(set(cells)) == 1 + 4 * (1 + 2 * 2)
    assert bench_packing.HEADLINE in cells and bench_packing.NOTHING_SHARED in cells


def test_a_cell_compares_with_the_fastest_of_trl_turn_by_turn() -> None:
    about = {"trie": side(100), "none": side(300), "trl_single": side(300), "trl_bfd": side(300), "trl_slow": side(300)}
    seconds = {
        "trie": [1.0, 2.0, 1.0],
        "none": [3.0, 3.0, 3.0],
        "trl_single": [3.0, 5.0, 2.5],
        "trl_bfd": [2.9, 9.0, 9.0],  # fastest in one turn, not in the median
    }
    cell = bench_packing.evaluated((4, 1, "result"), about, seconds)
    assert cell["best_trl"] == "trl_single"
    assert (cell["time_ratio_vs_best_trl"], cell["time_ratio_spread"]) == (2.5, [2.5, 3.0])
    assert (cell["token_ratio"], cell["time_ratio_vs_none"]) == (3.0, 3.0)
    assert cell["time_over_token_ratio"] == pytest.approx(2.5 / 3)
    assert cell["sides"]["trl_slow"] | {"turns": 0, "seconds": 9.0} == cell["sides"]["trl_slow"]


def test_sides_with_another_gradient_are_seen() -> None:
    about = {"none": side(1), "trie": side(1) | {"gradient": [3.0, 4.0804]}}
    assert bench_packing._difference(about) == pytest.approx(0.01)
    about["trie"]["gradient"] = [3.1, 4.0]
    assert bench_packing._difference(about) == pytest.approx(0.05)


@pytest.mark.slow
def test_a_quick_run_of_all_sides() -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert result["grad_rel_err"] < 1e-5
    assert result["token_ratio"] > 2.5
    alone, headline = result["cells"]
    assert alone["token_ratio"] == 1.0
    for cell in (alone, headline):
        assert cell["gradients_differ_by"] < 1e-4, "some side trained on something else"
        assert len(cell["sides"]) == 6
        assert all(item["peak_mib"] > 0 and item["seconds"] > 0 for item in cell["sides"].values())
    assert headline["sides"]["trie"]["peak_mib"] < headline["sides"]["trl_padded"]["peak_mib"]
