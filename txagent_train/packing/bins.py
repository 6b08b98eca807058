"""Which tries share a row, and which rank computes it: the algorithm alone, on numbers.

    traces --split--> tries of at most `budget` tokens
           --fill---> rows, as few as best fit makes, none over the budget
           --deal---> result[rank][pass]: rows of like cost at the same time, every rank as many

A trie is never cut: where a trace is too long for a row, whole samples go into another trie, which repeats what its
first sample has in common with the one before.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from txagent_train.core.errors import ModelError

Row = tuple[int, ...]
"""Numbers of the tries in a row, in their order; empty: nothing was left for it."""


@dataclass(frozen=True, slots=True)
class FlopCost:
    """FLOPs of one decoder layer's forward pass; the backward pass and the other layers are multiples of it.

    ``per_token`` is for the matrix products (2 for each weight), ``per_pair`` for a query that sees a key: the scores
    and the weighted sum, 2 x 2 for each dimension of each head.
    """

    per_token: int
    per_pair: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> FlopCost:
        """From the sizes of a model whose layers are built like Llama's, by their names in config.json.

        Raises:
            ModelError: the configuration does not say how wide the model is.
        """
        hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
        if not hidden or not heads:
            raise ModelError(
                "the model's configuration has no hidden_size or num_attention_heads, by which rows are balanced",
                where="model.name_or_path",
                fix="set train.packing=none",
            )
        head = config.get("head_dim") or hidden // heads
        key_heads = config.get("num_key_value_heads") or heads
        inner = config.get("intermediate_size") or 4 * hidden
        weights = 2 * hidden * head * (heads + key_heads) + 3 * hidden * inner
        return cls(per_token=2 * weights, per_pair=4 * heads * head)

    def __call__(self, tokens: int, pairs: int) -> int:
        return self.per_token * tokens + self.per_pair * pairs


def split(new: Sequence[int], shared: Sequence[int], budget: int) -> list[range]:
    """Cut the samples of a trace into runs whose tries have at most ``budget`` tokens, repeating as few as can be.

    Of the ways that repeat equally few, one with the fewest tries is taken: no two neighbours would fit into one row.

    Args:
        new: of each sample, how many tokens it has behind those in common with the sample before.
        shared: of each sample, how many it has in common with the sample before; 0 for the first. No sample may be
            longer than ``budget``.
    """
    # best[s]: the least (tokens repeated, tries) for the samples before s; its last run begins with begin[s].
    best, begin = [(0, 0)], [0]
    for stop in range(1, len(new) + 1):
        behind, found = 0, None
        for start in range(stop - 1, -1, -1):
            behind += new[start]
            if behind + shared[start] > budget:
                break  # a longer run only has more tokens
            repeated, tries = best[start]
            candidate = (repeated + shared[start], tries + 1), start
            found = candidate if found is None else min(found, candidate)
        assert found is not None, "a sample is longer than a row"
        best.append(found[0])
        begin.append(found[1])
    runs: list[range] = []
    stop = len(new)
    while stop:
        runs.append(range(begin[stop], stop))
        stop = begin[stop]
    return runs[::-1]


def deal_tries(sizes: Sequence[int], costs: Sequence[int], *, budget: int, ranks: int) -> tuple[tuple[Row, ...], ...]:
    """Fill rows with tries and deal them to ranks: ``result[rank][pass]``.

    Every rank gets the same number of rows, as few as the budget allows. Rows that this asks for beyond those of best
    fit are filled too, as long as there are tries: a row is left empty only where there are fewer tries than rows.
    In each pass ranks have rows of like cost, since they wait for each other where a model is sharded, and the
    costliest row of a pass goes to the rank that had least so far. Costly rows come first.

    Args:
        sizes: tokens of each trie, none over ``budget``.
        costs: of each trie, what ranks are balanced by.
        budget: most tokens of a row.
    """
    if not sizes:
        return tuple(() for _ in range(ranks))
    rows = _best_fit(sizes, budget)
    rows += [[] for _ in range(-len(rows) % ranks)]
    if ranks > 1:
        _even_out(rows, sizes, costs, budget)
    cost_of = [sum(costs[trie] for trie in row) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: (-cost_of[number], rows[number]))
    dealt: list[list[Row]] = [[] for _ in range(ranks)]
    total = [0] * ranks
    for start in range(0, len(order), ranks):
        least_first = sorted(range(ranks), key=lambda rank: total[rank])
        for rank, number in zip(least_first, order[start : start + ranks], strict=True):
            dealt[rank].append(tuple(sorted(rows[number])))
            total[rank] += cost_of[number]
    return tuple(tuple(rows) for rows in dealt)


def _best_fit(sizes: Sequence[int], budget: int) -> list[list[int]]:
    """Longest first, each into the row with the least room that is enough, or into a new one."""
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (tokens left, row), ascending
    for trie in sorted(range(len(sizes)), key=lambda trie: (-sizes[trie], trie)):
        place = bisect_left(room, (sizes[trie], 0))
        if place == len(room):
            rows.append([])
            left, row = budget, len(rows) - 1
        else:
            left, row = room.pop(place)
        assert sizes[trie] <= left, "a trie is longer than a row"
        rows[row].append(trie)
        insort(room, (left - sizes[trie], row))
    return rows


def _even_out(rows: list[list[int]], sizes: Sequence[int], costs: Sequence[int], budget: int) -> None:
    """Move tries into the cheapest row that has room for them, as long as that row stays cheaper than theirs was.

    Each move makes the sum of the squared costs smaller, so that it ends. An empty row takes one of any row with two.
    """
    tokens = np.array([sum(sizes[trie] for trie in row) for row in rows], dtype=np.int64)
    cost = np.array([sum(costs[trie] for trie in row) for row in rows], dtype=np.int64)
    row_of = {trie: number for number, row in enumerate(rows) for trie in row}
    order = sorted(row_of, key=lambda trie: (-costs[trie], trie))
    most = np.iinfo(np.int64).max
    moved = True
    while moved:
        moved = False
        for trie in order:
            source = row_of[trie]
            with_room = np.where(tokens + sizes[trie] <= budget, cost, most)
            target = int(with_room.argmin())
            if with_room[target] >= cost[source] - costs[trie]:
                continue
            for values, amount in ((tokens, sizes[trie]), (cost, costs[trie])):
                values[source] -= amount
                values[target] += amount
            rows[source].remove(trie)
            rows[target].append(trie)
            row_of[trie] = target
            moved = True
