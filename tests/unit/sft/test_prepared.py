from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiny_training import prepare_rows, random_traces
from txagent_train.core.errors import DataError
from txagent_train.core.records import RenderedExample
from txagent_train.sft.batches import collate
from txagent_train.sft.parts import Part, merge_parts
from txagent_train.sft.plan import total_weight
from txagent_train.sft.prepared import PreparedRows
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
    assert list(rows.length) == [len(row.input_ids) for _, row in flat]
    report = rows.report
    assert report.tokens == sum(rows.length) and report.longest == max(rows.length)
    assert report.supervised_tokens == sum(sum(row.loss_mask) for _, row in flat)
    assert sum(report.supervised_by_step.values()) == report.supervised_tokens
    assert rows.trace_ids == tuple(f"t{number}" for number in range(7))


def test_another_key_is_not_opened(tmp_path: Path) -> None:
    prepare_rows(tmp_path / "epoch", random_traces(1))
    assert PreparedRows.open(tmp_path / "epoch", "other") is None
    assert PreparedRows.open(tmp_path / "absent", "test") is None


@pytest.mark.parametrize("name", ["pool.npy", "weight.npy", "rows.json"])
@pytest.mark.parametrize("keep", [0, 20, -8])
def test_a_torn_folder_is_not_opened(tmp_path: Path, name: str, keep: int) -> None:
    prepare_rows(tmp_path / "epoch", random_traces(3))
    path = tmp_path / "epoch" / name
    path.write_bytes(path.read_bytes()[:keep])
    assert PreparedRows.open(tmp_path / "epoch", "test") is None


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    part = Part(0)
    part.save(tmp_path / "part.npz")
    with pytest.raises(DataError, match="no sample is left: no step is trained on"):
        merge_parts([tmp_path / "part.npz"], tmp_path / "epoch", key="k", source_names=("a",), kinds=("trace",))
    assert [path.name for path in tmp_path.iterdir()] == ["part.npz"]


ROW_LISTS = st.lists(
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4)), min_size=1, max_size=5), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(traces=ROW_LISTS)
def test_rows_that_share_their_beginning_come_back_whole(traces: list[list[tuple[list[int], int]]]) -> None:
    """Few different tokens, so that rows share long and short beginnings, or are the whole beginning of another."""
    rendered = [
        [
            RenderedExample(f"t#{step}", step, (*prompt, *[9] * output), (False,) * len(prompt) + (True,) * output)
            for step, (prompt, output) in enumerate(steps)
        ]
        for steps in traces
    ]
    with tempfile.TemporaryDirectory() as folder:
        rows = prepare_rows(Path(folder) / "epoch", rendered)
        flat = [row for trace in rendered for row in trace]
        assert [tuple(rows.row(number)[0]) for number in range(len(rows))] == [row.input_ids for row in flat]
        assert [tuple(rows.row(number)[1]) for number in range(len(rows))] == [row.loss_mask for row in flat]
        assert len(rows.pool) == rows.report.stored_tokens <= rows.report.tokens == sum(rows.length)


def test_a_trace_is_stored_in_its_length_and_not_its_square(tmp_path: Path) -> None:
    def stored(steps: int) -> int:
        rows = [
            RenderedExample(f"t#{n}", n, (*range(10 * n), 1, 2), (False,) * 10 * n + (True, True))
            for n in range(1, steps + 1)
        ]
        return prepare_rows(tmp_path / str(steps), [rows]).report.stored_tokens

    assert stored(40) - stored(20) == 20 * 12


def test_an_id_that_occurs_twice_in_a_source_is_an_error_that_names_both_lines(tmp_path: Path) -> None:
    row = random_traces(1)[0][0]
    for number in range(2):
        part = Part(0, read=[(300 * number + 1, "same")])
        part.start_trace("same")
        part.add(row)
        part.save(tmp_path / f"{number}.npz")
    paths = [tmp_path / "0.npz", tmp_path / "1.npz"]
    with pytest.raises(
        DataError, match=r"a.jsonl:301, trace same: another .* same id\n  -> the other one is in line 1;"
    ):
        merge_parts(paths, tmp_path / "epoch", key="k", source_names=("a.jsonl",), kinds=("trace",))


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
    assert batch.tokens == sum(int(rows.length[number]) for number in numbers)


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
