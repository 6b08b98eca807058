from __future__ import annotations

from txagent_train.tracking.metric_sections import metric_sections
from txagent_train.tracking.sections import Curves, Table


def _record(step: int, kind: str, **by_source: float) -> dict[str, object]:
    return {"step": step, "kind": kind, "loss": 1.0, "loss_by_source": by_source}


def test_sources_have_curves_where_there_are_several() -> None:
    records = [_record(1, "train", a=1.0, b=2.0), _record(2, "train", b=3.0), _record(2, "eval", h=float("inf"))]
    loss, by_source, *_ = metric_sections(records)
    assert isinstance(loss, Curves) and isinstance(by_source, Curves)
    assert (loss.heading, by_source.heading) == ("Loss", "Loss by source")
    assert by_source.series == {
        "train: a": ((1.0, 1.0),),
        "train: b": ((1.0, 2.0), (2.0, 3.0)),
        "eval: h": ((2.0, float("inf")),),
    }


def test_one_source_is_the_loss_itself() -> None:
    records = [_record(1, "train", a=1.0), _record(2, "train", a=2.0), _record(2, "eval", h=3.0)]
    assert [section.heading for section in metric_sections(records)] == ["Loss"]


def test_facts_of_each_start_are_no_curves() -> None:
    starts = [{"kind": "start", "step": step, "world_size": 1, "trainable": 7} for step in (0, 4)]
    losses = [_record(step, "train", a=1.0) for step in range(1, 6)]
    loss, facts = metric_sections([starts[0], *losses, starts[1]])
    assert isinstance(loss, Curves) and set(loss.series) == {"train"}
    assert isinstance(facts, Table)
    assert facts.rows == (
        ("world_size", "start", 0, 1),
        ("trainable", "start", 0, 7),
        ("world_size", "start", 4, 1),
        ("trainable", "start", 4, 7),
    )
