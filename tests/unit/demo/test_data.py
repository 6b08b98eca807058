from __future__ import annotations

from pathlib import Path

from txagent_train.core.records import Trace
from txagent_train.data.loading import load_traces
from txagent_train.data.rewrites import RewriteSet
from txagent_train.data.toolbox import Toolbox
from txagent_train.demo.data import DemoSize, write_demo_data

SIZE = DemoSize(train_traces=30, heldout_traces=40)


def called(traces: list[Trace] | tuple[Trace, ...]) -> set[str]:
    return {call.name for trace in traces for step in trace.steps for call in step.calls}


def test_data_is_the_same_for_a_seed_and_disjoint_by_drug(tmp_path: Path) -> None:
    data = write_demo_data(tmp_path / "a", SIZE, seed=0)
    write_demo_data(tmp_path / "b", SIZE, seed=0)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 7
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    train = (tmp_path / "a" / "train.jsonl").read_text().lower()
    heldout = (*data.seen, *data.unseen_tools)
    assert not any(entity.lower() in train for trace in heldout for entity in trace.entities)


def test_held_out_tools_are_called_in_their_set_alone(tmp_path: Path) -> None:
    data = write_demo_data(tmp_path, SIZE, seed=1)
    rewrites = RewriteSet.read(tmp_path / "rewrites.jsonl")
    rewrites.check_fits(Toolbox.read(tmp_path / "toolbox.json"))
    train = list(load_traces(tmp_path / "train.jsonl"))
    assert len(train) == SIZE.train_traces and len(rewrites.held_out_tools) == 3
    assert not called(train) & rewrites.held_out_tools and not called(data.seen) & rewrites.held_out_tools
    assert all(called((trace,)) & rewrites.held_out_tools for trace in data.unseen_tools)
    shown = {spec.name for trace in (*data.seen, *data.unseen_rewrites) for spec in trace.tools()}
    assert not shown & rewrites.held_out_tools
    assert len(data.unseen_rewrites) == len(data.seen)
    assert not called(data.unseen_rewrites) & (called(data.seen) - {"Tool_RAG"})
