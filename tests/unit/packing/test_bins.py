"""Rows of tries as numbers: every trie once, budgets kept, ranks even, the same result each time."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.core.errors import ModelError
from txagent_train.packing.bins import FlopCost, deal_tries, split

BUDGET = 40
TRIES = st.lists(st.integers(1, BUDGET), min_size=1, max_size=30)
RANKS = st.integers(1, 6)


@st.composite
def samples(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """New and shared tokens of the samples of a trace, none longer than BUDGET."""
    new, shared, length = [], [], 0
    for _ in range(draw(st.integers(1, 7))):
        shared.append(draw(st.integers(0, length)))
        new.append(draw(st.integers(0 if shared[-1] else 1, BUDGET - shared[-1])))
        length = shared[-1] + new[-1]
    return new, shared


def tokens_of(run: range, new: list[int], shared: list[int]) -> int:
    return shared[run.start] + sum(new[run.start : run.stop])


def all_splits(count: int) -> list[list[range]]:
    """Every way to cut so many samples into runs."""
    cuts = itertools.chain.from_iterable(itertools.combinations(range(1, count), size) for size in range(count))
    return [[range(a, b) for a, b in itertools.pairwise((0, *chosen, count))] for chosen in cuts]


@given(samples())
def test_a_trace_is_split_so_that_the_fewest_tokens_are_repeated(trace: tuple[list[int], list[int]]) -> None:
    new, shared = trace

    def repeated(runs: list[range]) -> tuple[int, int]:
        return sum(shared[run.start] for run in runs), len(runs)

    runs = split(new, shared, BUDGET)
    assert [sample for run in runs for sample in run] == list(range(len(new)))
    assert all(tokens_of(run, new, shared) <= BUDGET for run in runs)
    possible = [way for way in all_splits(len(new)) if all(tokens_of(run, new, shared) <= BUDGET for run in way)]
    assert repeated(runs) == min(map(repeated, possible))
    for run, following in itertools.pairwise(runs):
        assert tokens_of(run, new, shared) + tokens_of(following, new, shared) > BUDGET, "they never share a row"
    assert runs == split(new, shared, BUDGET)


def test_a_trace_that_fits_is_not_split() -> None:
    assert split([10, 5], [0, 8], 15) == [range(0, 2)]
    assert split([10, 5], [0, 8], 14) == [range(0, 1), range(1, 2)]
    # The second cut repeats 2 tokens, the first would repeat 8.
    assert split([10, 2, 6], [0, 8, 2], 15) == [range(0, 2), range(2, 3)]


def costs_of(sizes: list[int]) -> list[int]:
    return [7 * size + size * size for size in sizes]


@given(TRIES, RANKS)
def test_every_trie_is_in_one_row_and_no_row_is_over_the_budget(sizes: list[int], ranks: int) -> None:
    dealt = deal_tries(sizes, costs_of(sizes), budget=BUDGET, ranks=ranks)
    assert len(dealt) == ranks and len({len(rows) for rows in dealt}) == 1
    assert Counter(trie for rows in dealt for row in rows for trie in row) == Counter(range(len(sizes)))
    assert all(sum(sizes[trie] for trie in row) <= BUDGET for rows in dealt for row in rows)
    assert all(list(row) == sorted(row) for rows in dealt for row in rows)
    assert dealt == deal_tries(sizes, costs_of(sizes), budget=BUDGET, ranks=ranks)


@given(TRIES, RANKS)
def test_rows_are_as_few_as_best_fit_makes_and_empty_only_without_a_trie_left(sizes: list[int], ranks: int) -> None:
    dealt = deal_tries(sizes, costs_of(sizes), budget=BUDGET, ranks=ranks)
    (packed,) = deal_tries(sizes, costs_of(sizes), budget=BUDGET, ranks=1)
    assert len(dealt[0]) == -(-len(packed) // ranks)
    fullest = [sum(sizes[trie] for trie in row) for row in packed]
    assert all(one + other > BUDGET for one, other in itertools.combinations(fullest, 2)), "no two rows would be one"
    rows = [row for rows in dealt for row in rows]
    if any(not row for row in rows):
        assert all(len(row) <= 1 for row in rows)
        assert all(row for rows in dealt for row in rows[:-1]), "what is missing is missing in the last pass"


@given(TRIES, RANKS)
def test_no_move_of_a_trie_would_make_two_rows_more_even(sizes: list[int], ranks: int) -> None:
    costs = costs_of(sizes)
    rows = [row for dealt in deal_tries(sizes, costs, budget=BUDGET, ranks=ranks) for row in dealt]
    if ranks == 1:
        return
    for source, target in itertools.permutations(rows, 2):
        for trie in source:
            fits = sum(sizes[other] for other in target) + sizes[trie] <= BUDGET
            cheaper = sum(costs[other] for other in target) + costs[trie] < sum(costs[other] for other in source)
            assert not (fits and cheaper)


def test_ranks_compute_rows_of_like_cost_at_the_same_time_and_alike_in_sum() -> None:
    sizes = [40, 38, 30, 29, 21, 20, 11, 10]
    costs = costs_of(sizes)
    first, second = deal_tries(sizes, costs, budget=BUDGET, ranks=2)
    at_once = [[sum(costs[trie] for trie in row) for row in rows] for rows in zip(first, second, strict=True)]
    assert all(max(pair) < 1.25 * min(pair) for pair in at_once)
    assert [max(pair) for pair in at_once] == sorted((max(pair) for pair in at_once), reverse=True)
    totals = [sum(costs[trie] for row in rows for trie in row) for rows in (first, second)]
    assert max(totals) < 1.05 * min(totals)


def test_tries_are_spread_over_ranks_before_a_row_stays_empty() -> None:
    assert deal_tries([5, 5, 5, 5], [5, 5, 5, 5], budget=BUDGET, ranks=1) == (((0, 1, 2, 3),),)
    spread = deal_tries([5, 5, 5, 5], [5, 5, 5, 5], budget=BUDGET, ranks=4)
    assert sorted(spread) == [((0,),), ((1,),), ((2,),), ((3,),)]
    assert sorted(deal_tries([5, 6], [5, 6], budget=BUDGET, ranks=3)) == [((),), ((0,),), ((1,),)]
    assert deal_tries([], [], budget=BUDGET, ranks=3) == ((), (), ())


def test_the_cost_of_a_layer() -> None:
    # Llama-3.1-8B: 218.1M weights a layer; 32 heads of 128.
    llama = FlopCost.of(
        {
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "head_dim": None,
        }
    )
    assert (llama.per_token, llama.per_pair) == (2 * 218_103_808, 4 * 4096)
    assert llama(10, 55) == 10 * llama.per_token + 55 * llama.per_pair
    with pytest.raises(ModelError, match="no hidden_size"):
        FlopCost.of({"d_model": 4})
