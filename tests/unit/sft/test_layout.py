"""From prepared rows to rows of tries: each sample once and as it is alone, no row over its budget."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiny_training import prepare_rows, random_traces, tiny_recipe
from txagent_train.core.errors import UserError
from txagent_train.packing.bins import FlopCost
from txagent_train.sft.batches import ForwardBatch, collate
from txagent_train.sft.layout import RowLayout, deal_rows, traces_in, trie_size
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward

COST = FlopCost(per_token=100, per_pair=1)


def tries_of(row_tokens: int) -> RowLayout:
    return RowLayout(packing="trie", rows_per_forward=1, row_tokens=row_tokens, cost=COST)


def check_each_target_is_predicted_from_its_sample_alone(rows: PreparedRows, batch: ForwardBatch) -> None:
    assert batch.input_ids.shape[0] == 1 and batch.end is not None and batch.position is not None
    ids, end, position = (tensor[0].numpy() for tensor in (batch.input_ids, batch.end, batch.position))
    places = np.arange(len(ids))
    expected: list[tuple[tuple[int, ...], int]] = []
    for number in batch.rows:
        sample, mask = rows.row(number)
        expected += [(tuple(sample[:at]), int(sample[at])) for at in np.flatnonzero(mask)]
    found = []
    for predictor, target in zip(batch.predictors.tolist(), batch.targets.tolist(), strict=True):
        seen = (places <= predictor) & (predictor < end)
        assert position[seen].tolist() == list(range(seen.sum()))
        found.append((tuple(ids[seen]), target))
    assert found == expected


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(0, 60), st.integers(1, 4))
def test_each_sample_is_once_in_the_rows_of_all_ranks(seed: int, traces: int, spare: int, ranks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = prepare_rows(Path(folder) / "rows", random_traces(traces, seed=seed))
        row_tokens = int(rows.length.max()) + spare
        dealt = deal_rows(rows, range(len(rows)), tries_of(row_tokens), world_size=ranks)
        assert len({len(forwards) for forwards in dealt}) == 1
        forwards = [forward for of_rank in dealt for forward in of_rank]
        real = [forward for forward in forwards if not forward.filler]
        assert Counter(number for forward in real for number in forward.rows) == Counter(range(len(rows)))
        for forward in forwards:
            batch = collate(rows, forward, pad_token_id=0, reduction="token", packing="trie")
            assert batch.input_ids.numel() <= row_tokens
            assert batch.tokens == (0 if forward.filler else batch.input_ids.numel())
            assert batch.input_ids.numel() == sum(trie_size(rows, trie)[0] for trie in traces_in(rows, forward.rows))
            check_each_target_is_predicted_from_its_sample_alone(rows, batch)
        cheapest = min(trie_size(rows, trie)[0] for forward in forwards for trie in traces_in(rows, forward.rows))
        for forward in forwards:
            if forward.filler:
                assert sum(trie_size(rows, trie)[0] for trie in traces_in(rows, forward.rows)) == cheapest


def test_rows_of_a_trace_with_a_gap_between_them_are_several_tries(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(8, seed=3))
    trace = next(number for number in range(8) if (rows.trace == number).sum() == 3)
    first = int(np.flatnonzero(rows.trace == trace)[0])
    numbers = (first, first + 2)
    assert traces_in(rows, numbers) == [range(first, first + 1), range(first + 2, first + 3)]
    batch = collate(rows, Forward(numbers), pad_token_id=0, reduction="token", packing="trie")
    assert batch.tokens == int(rows.length[list(numbers)].sum())
    check_each_target_is_predicted_from_its_sample_alone(rows, batch)


def test_the_size_of_a_trie_is_that_of_its_arrays(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(9, seed=1))
    for trie in traces_in(rows, range(len(rows))):
        batch = collate(rows, Forward(tuple(trie)), pad_token_id=0, reduction="token", packing="trie")
        assert batch.position is not None
        assert trie_size(rows, trie) == (batch.tokens, int((batch.position + 1).sum()))


def test_rows_that_are_filled_less_cut_no_trie(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(9, seed=1))
    tries = traces_in(rows, range(len(rows)))
    sizes = sorted(trie_size(rows, trie)[0] for trie in tries)
    fill = sizes[-2]  # one trie is longer
    assert fill < sizes[-1] and sizes[0] + sizes[1] <= fill
    layout = RowLayout("trie", 1, row_tokens=sum(sizes), cost=COST, fill=fill)
    (forwards,) = deal_rows(rows, range(len(rows)), layout, world_size=1)
    in_rows = [traces_in(rows, forward.rows) for forward in forwards]
    assert sorted((trie for row in in_rows for trie in row), key=lambda trie: trie.start) == tries
    tokens = [sum(trie_size(rows, trie)[0] for trie in row) for row in in_rows]
    assert len(in_rows) < len(tries)
    assert all(size <= fill or len(row) == 1 for size, row in zip(tokens, in_rows, strict=True))


def test_a_sample_that_is_longer_than_a_row_is_named(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(4))
    longest = int(rows.length.max())
    number = int(rows.length.argmax())
    tries_of(longest).check([rows])
    with pytest.raises(UserError) as caught:
        tries_of(longest - 1).check([rows])
    trace, step = rows.trace_ids[int(rows.trace[number])], rows.step[number]
    assert str(caught.value) == (
        f"train.row_tokens: the longest sample (trace {trace}, step {step}) has {longest} tokens, but a row takes "
        f"{longest - 1}\n  -> set train.row_tokens={longest} or more, or leave out what is longer: "
        f"data.max_length={longest - 1} data.overlong=drop"
    )


def test_a_recipe_says_how_much_a_row_takes(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24}
    recipe = tiny_recipe(tmp_path, data={"max_length": 77})
    assert RowLayout.of(recipe, sizes) == RowLayout("trie", 1, 77, FlopCost.of(sizes))
    assert RowLayout.of(tiny_recipe(tmp_path, train={"row_tokens": 99}), sizes).row_tokens == 99
    for max_length, asked, fill in ((5000, None, 1024), (77, None, 77), (5000, 4000, None)):
        recipe = tiny_recipe(tmp_path, data={"max_length": max_length}, train={"row_tokens": asked})
        layout = RowLayout.of(recipe, sizes, cpu=True)
        assert (layout.row_tokens, layout.fill) == (asked or max_length, fill)
    # Models of any kind train row by row.
    single = RowLayout.of(tiny_recipe(tmp_path, train={"packing": "none", "rows_per_forward": 3}), {})
    assert (single.packing, single.rows_per_forward, single.cost) == ("none", 3, None)
    single.check([prepare_rows(tmp_path / "rows", random_traces(2))])
