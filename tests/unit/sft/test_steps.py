"""Planning of optimizer steps: every row exactly once, equal counts on every rank, deterministic."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from txagent_train.sft.steps import deal, plan_epoch, steps_for

traces_of_rows = st.lists(st.integers(0, 12), min_size=1, max_size=40)


@given(traces_of_rows, st.integers(1, 6), st.integers(0, 3), st.integers(0, 3))
def test_an_epoch_holds_every_row_once_and_whole_traces(
    traces: list[int], traces_per_step: int, seed: int, epoch: int
) -> None:
    plans = plan_epoch(traces, traces_per_step=traces_per_step, seed=seed, epoch=epoch)
    assert sorted(row for plan in plans for row in plan.rows) == list(range(len(traces)))
    assert len(plans) == steps_for(len(set(traces)), traces_per_step)
    assert all(len(plan.traces) == traces_per_step for plan in plans[:-1])
    assert 1 <= len(plans[-1].traces) <= traces_per_step
    for plan in plans:
        assert {traces[row] for row in plan.rows} == set(plan.traces)
    assert plans == plan_epoch(traces, traces_per_step=traces_per_step, seed=seed, epoch=epoch)


def test_epochs_and_seeds_are_ordered_differently() -> None:
    orders = {
        tuple(
            trace for plan in plan_epoch(range(30), traces_per_step=4, seed=seed, epoch=epoch) for trace in plan.traces
        )
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


@given(
    st.dictionaries(st.integers(0, 99), st.integers(1, 50), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_dealing_gives_every_row_once_and_every_rank_as_many_forwards(
    length_of_row: dict[int, int], world_size: int, rows_per_forward: int
) -> None:
    rows, lengths = list(length_of_row), list(length_of_row.values())
    ranks = deal(rows, lengths, world_size=world_size, rows_per_forward=rows_per_forward)
    assert len(ranks) == world_size
    assert len({len(forwards) for forwards in ranks}) == 1
    real = [forward for forwards in ranks for forward in forwards if not forward.filler]
    assert Counter(row for forward in real for row in forward.rows) == Counter(rows)
    assert all(1 <= len(forward.rows) <= rows_per_forward for forward in real)
    shortest = min(lengths)
    for forwards in ranks:
        for forward in forwards:
            if forward.filler:
                assert [length_of_row[row] for row in forward.rows] == [shortest]
    assert ranks == deal(rows, lengths, world_size=world_size, rows_per_forward=rows_per_forward)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 4))
def test_no_rank_gets_more_forwards_than_needed(lengths: list[int], world_size: int, rows_per_forward: int) -> None:
    ranks = deal(range(len(lengths)), lengths, world_size=world_size, rows_per_forward=rows_per_forward)
    assert len(ranks[0]) == -(-len(lengths) // (world_size * rows_per_forward))


def test_ranks_compute_rows_of_like_length_at_the_same_time() -> None:
    lengths = [100, 99, 50, 51, 10, 11, 9, 12]
    ranks = deal(range(8), lengths, world_size=2, rows_per_forward=1)
    at_once = [sorted((lengths[a.rows[0]], lengths[b.rows[0]])) for a, b in zip(*ranks, strict=True)]
    assert at_once == [[99, 100], [50, 51], [11, 12], [9, 10]]
    totals = [sum(lengths[forward.rows[0]] for forward in forwards) for forwards in ranks]
    assert abs(totals[0] - totals[1]) <= 2


def test_nothing_to_deal() -> None:
    assert deal([], [], world_size=3, rows_per_forward=2) == ((), (), ())
