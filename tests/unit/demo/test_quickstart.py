"""The quickstart end to end, with the real embedded model, at a size that says nothing about quality."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txagent_train.demo.quickstart import QuickstartSize, next_call_examples, run_quickstart, write_demo_data

SMALL = QuickstartSize(
    train_traces=3, heldout_traces=8, next_calls=4, questions=2, max_new_tokens=12, max_agent_steps=2, max_unparsable=1
)


def test_data_is_the_same_for_a_seed_and_disjoint_by_drug(tmp_path: Path) -> None:
    heldout = write_demo_data(tmp_path / "a", size=SMALL, seed=0)
    write_demo_data(tmp_path / "b", size=SMALL, seed=0)
    for name in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    train = (tmp_path / "a" / "train.jsonl").read_text().lower()
    assert not any(entity.lower() in train for trace in heldout for entity in trace.entities)


def test_default_size_has_what_the_table_promises(tmp_path: Path) -> None:
    size = QuickstartSize()
    heldout = write_demo_data(tmp_path, size=size, seed=0)
    assert len(next_call_examples(heldout, size.next_calls)) == size.next_calls >= 40
    assert size.questions >= 6


@pytest.mark.slow
def test_everything_runs_and_a_second_call_only_compares(tmp_path: Path) -> None:
    result = run_quickstart(tmp_path, size=SMALL, overrides=["train.max_steps=1"])
    assert [(row.metric, row.trained.total) for row in result.rows] == [
        ("next call exact", 4),
        ("next call tools", 4),
        ("answer", 2),
    ]
    html = result.report.read_text()
    assert "Base and trained model on held-out drugs" in html and "Answers of the trained model" in html
    assert json.loads((tmp_path / "quickstart.json").read_text())["training"]["steps"] == 1
    weights = (result.training.model_dir / "adapter_model.safetensors").read_bytes()
    again = run_quickstart(tmp_path, size=SMALL, overrides=["train.max_steps=1"])
    assert (again.training.model_dir / "adapter_model.safetensors").read_bytes() == weights
    assert [row.to_json() for row in again.rows] == [row.to_json() for row in result.rows]
