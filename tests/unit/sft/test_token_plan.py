from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_training import prepare_rows
from txagent_train.core.records import RenderedExample
from txagent_train.packing.bins import FlopCost
from txagent_train.sft.layout import Packing, RowLayout
from txagent_train.sft.plan import RunPlan
from txagent_train.sft.token_plan import TokenCounts, TokenPlan


def sample(trace: int, step: int, tokens: list[int], supervised: int) -> RenderedExample:
    mask = (False,) * (len(tokens) - supervised) + (True,) * supervised
    return RenderedExample(f"t{trace}#{step}", step, tuple(tokens), mask)


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    """Two epochs of three traces, two in a step; one trace has three samples of 10, 14 and 12 tokens, sharing 8 and 6.

    The others have one sample of 5 tokens each.
    """
    head = list(range(10, 18))
    long = [
        sample(0, 0, [*head, 4, 5], 2),
        sample(0, 1, [*head, *range(20, 26)], 3),
        sample(0, 2, [*head[:6], *range(30, 36)], 1),
    ]
    short = [[sample(number, 0, [4, 5, 6, 7, 8], 1)] for number in (1, 2)]
    epochs = [prepare_rows(tmp_path / f"epoch-{number}", [long, *short]) for number in range(2)]
    return RunPlan.of(epochs, traces_per_step=2, seed=0, reduction="token")


def counted(plan: RunPlan, row_tokens: int, ranks: int = 1, packing: Packing = "trie", rows: int = 1) -> TokenPlan:
    return TokenPlan.of(
        plan, RowLayout(packing, rows, row_tokens, FlopCost(1, 1) if packing == "trie" else None), ranks=ranks
    )


def sizes_by_step(plan: RunPlan) -> list[list[int]]:
    """Tokens of the tries of each step; the long trace has 10 + 6 + 6."""
    return [[5 if trace else 22 for trace in step.traces] for step in plan.steps]


def test_tries(plan: RunPlan) -> None:
    whole = counted(plan, 100)
    sizes = sizes_by_step(plan)
    assert whole.total == TokenCounts(
        steps=4, traces=6, samples=10, naive=92, computed=64, supervised=16, rows=4, longest_row=max(map(sum, sizes))
    )
    assert [(epoch.computed, epoch.naive, epoch.rows, epoch.steps) for epoch in whole.epochs] == [(32, 46, 2, 2)] * 2
    assert whole.total.sharing_ratio == whole.to_json()["total"]["sharing_ratio"] == 92 / 64


def test_a_trace_that_is_longer_than_a_row_is_counted(plan: RunPlan) -> None:
    epoch = counted(plan, 16).epochs[0]
    # 10 + 6 tokens, and the last sample by itself: it repeats 6.
    assert (epoch.split_tries, epoch.repeated, epoch.computed, epoch.naive) == (1, 6, 38, 46)


def test_ranks_without_a_trie_compute_one_for_nothing(plan: RunPlan) -> None:
    total = counted(plan, 100, ranks=3).total
    sizes = sizes_by_step(plan)
    assert (total.rows, total.fillers, total.computed, total.longest_row) == (6, 6, 64, 22)
    assert total.padding == sum((3 - len(step)) * min(step) for step in sizes)


def test_row_by_row(plan: RunPlan) -> None:
    alone = counted(plan, 100, packing="none").total
    assert (alone.rows, alone.naive, alone.computed, alone.padding, alone.longest_row) == (10, 92, 92, 0, 14)
    pairs = counted(plan, 100, packing="none", rows=50).total
    assert (pairs.rows, pairs.computed, pairs.sharing_ratio) == (10, 92, 1.0)
    assert pairs.padding > 0
