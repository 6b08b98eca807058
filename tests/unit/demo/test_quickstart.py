"""The quickstart end to end, with the real embedded model, at a size that says nothing about quality."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txagent_train.demo.data import DemoSize, write_demo_data
from txagent_train.demo.quickstart import QuickstartSize, next_call_examples, run_quickstart

SMALL = QuickstartSize(
    DemoSize(train_traces=3, heldout_traces=16),
    next_calls=4,
    unseen_calls=2,
    questions=2,
    max_new_tokens=12,
    max_agent_steps=2,
    max_unparsable=1,
)


def test_default_size_has_what_the_table_promises(tmp_path: Path) -> None:
    size = QuickstartSize()
    data = write_demo_data(tmp_path, DemoSize(), seed=0)
    assert len(next_call_examples(data.seen, size.next_calls)) == size.next_calls >= 40
    for sample in (data.unseen_rewrites, data.unseen_tools):
        assert len(next_call_examples(sample, size.unseen_calls)) == size.unseen_calls >= 24
    assert size.questions >= 6


@pytest.mark.slow
def test_everything_runs_and_a_second_call_only_compares(tmp_path: Path) -> None:
    result = run_quickstart(tmp_path, size=SMALL, overrides=["train.max_steps=1"])
    assert [(row.metric, row.trained.total) for row in result.rows] == [
        ("next call exact", 4),
        ("next call tools", 4),
        ("next call exact, unseen rewrites", 2),
        ("next call tools, unseen rewrites", 2),
        ("next call exact, unseen tools", 2),
        ("next call tools, unseen tools", 2),
        ("answer", 2),
    ]
    html = result.report.read_text()
    assert "Base and trained model on held-out drugs" in html and "Answers of the trained model" in html
    assert json.loads((tmp_path / "quickstart.json").read_text())["training"]["steps"] == 1
    weights = (result.training.model_dir / "adapter_model.safetensors").read_bytes()
    again = run_quickstart(tmp_path, size=SMALL, overrides=["train.max_steps=1"])
    assert (again.training.model_dir / "adapter_model.safetensors").read_bytes() == weights
    assert [row.to_json() for row in again.rows] == [row.to_json() for row in result.rows]
