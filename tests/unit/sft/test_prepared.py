from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_training import prepare_rows, random_traces
from txagent_train.sft.batches import collate, total_weight
from txagent_train.sft.prepared import PreparedRows, RowWriter
from txagent_train.sft.steps import Forward


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    traces = random_traces(7, weights=(1.0, 0.5))
    rows = prepare_rows(tmp_path / "epoch", traces)
    flat = [(number, row) for number, trace in enumerate(traces) for row in trace]
    assert len(rows) == len(flat)
    for index, (number, row) in enumerate(flat):
        ids, mask = rows.row(index)
        assert tuple(ids) == row.input_ids and tuple(mask) == row.loss_mask
        assert rows.trace[index] == number and rows.step[index] == row.step_index
        assert rows.weight[index] == row.weight and rows.supervised[index] == sum(row.loss_mask)
        assert rows.source_names[rows.source[index]] == ("even", "odd")[number % 2]
    assert list(rows.lengths) == [len(row.input_ids) for _, row in flat]
    report = rows.report
    assert report.tokens == sum(rows.lengths) and report.longest == max(rows.lengths)
    assert report.supervised_tokens == sum(sum(row.loss_mask) for _, row in flat)
    assert sum(report.supervised_by_step.values()) == report.supervised_tokens
    assert rows.trace_ids == tuple(f"t{number}" for number in range(7))


def test_another_key_is_not_opened(tmp_path: Path) -> None:
    prepare_rows(tmp_path / "epoch", random_traces(1))
    assert PreparedRows.open(tmp_path / "epoch", "other") is None
    assert PreparedRows.open(tmp_path / "absent", "test") is None


@pytest.mark.parametrize("name", ["ids.npy", "weight.npy", "rows.json"])
@pytest.mark.parametrize("keep", [0, 20, -8])
def test_a_torn_folder_is_not_opened(tmp_path: Path, name: str, keep: int) -> None:
    prepare_rows(tmp_path / "epoch", random_traces(3))
    path = tmp_path / "epoch" / name
    path.write_bytes(path.read_bytes()[:keep])
    assert PreparedRows.open(tmp_path / "epoch", "test") is None


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RowWriter(tmp_path / "epoch", key="k", source_names=("a",)) as writer:
        writer.start_trace("t")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_batch_predicts_each_supervised_token_from_the_one_before(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "epoch", random_traces(5, weights=(2.0, 0.5)))
    numbers = (0, 2, 1)
    batch = collate(rows, Forward(numbers), pad_token_id=0, reduction="token")
    width = batch.input_ids.shape[1]
    expected = []
    for place, number in enumerate(numbers):
        ids, mask = rows.row(number)
        assert batch.input_ids[place, : len(ids)].tolist() == ids.tolist()
        assert not batch.input_ids[place, len(ids) :].any()
        expected += [(place * width + at - 1, int(ids[at]), rows.weight[number]) for at in np.flatnonzero(mask)]
    assert list(zip(batch.predictors.tolist(), batch.targets.tolist(), batch.weights.tolist(), strict=True)) == expected
    assert batch.tokens == sum(int(rows.lengths[number]) for number in numbers)


def test_sample_weights_of_a_row_sum_to_its_weight_and_a_filler_weighs_nothing(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "epoch", random_traces(5, weights=(2.0, 0.5)))
    batch = collate(rows, Forward((0, 1)), pad_token_id=0, reduction="sample")
    for place in (0, 1):
        assert float(batch.weights[batch.row_of_triple == place].sum()) == pytest.approx(float(rows.weight[place]))
    assert total_weight(rows, (0, 1), "sample") == pytest.approx(float(batch.weights.sum()))
    tokens = collate(rows, Forward((0, 1)), pad_token_id=0, reduction="token")
    assert total_weight(rows, (0, 1), "token") == pytest.approx(float(tokens.weights.sum()))
    filler = collate(rows, Forward((0,), filler=True), pad_token_id=0, reduction="token")
    assert not filler.weights.any() and filler.tokens == 0 and len(filler.targets) > 0
