"""How the samples of an optimizer step become the rows of forward passes. No torch.

    none   rows_per_forward samples at once, each a row of its own, padded on the right
    trie   one row at once: the samples of a trace are one trie, and tries stand behind each other up to row_tokens

A trace whose trie is longer than a row is cut between samples (packing.bins.split). Layouts change speed and memory,
never the loss: each sample is computed once in its step, whichever row it is in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import UserError
from txagent_train.packing.bins import FlopCost, deal_tries, split
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward, deal

Packing = Literal["none", "trie"]

_CPU_FILL = 1024
"""A CPU multiplies matrices at full speed from a few hundred rows on. More tokens at once only make tensors that are
too large for its cache, and for its allocator to keep: each is then made of fresh pages, which takes longer."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What a forward pass takes: ``rows_per_forward`` rows, or one row of at most ``row_tokens`` tokens.

    ``cost`` is what rows of tries are balanced over ranks by; None with packing none. ``fill``: tries are put together
    up to so many tokens only, and a longer one has a row to itself (None: up to ``row_tokens``).
    """

    packing: Packing
    rows_per_forward: int
    row_tokens: int
    cost: FlopCost | None
    fill: int | None = None

    @classmethod
    def of(cls, recipe: SftRecipe, config: Mapping[str, Any], *, cpu: bool = False) -> RowLayout:
        """The layout of a recipe; ``config`` has the sizes of the model.

        Args:
            cpu: it is computed on a CPU, where rows are filled less, unless the recipe says how long they are.

        Raises:
            ModelError: as FlopCost.of.
        """
        train = recipe.train
        row_tokens = recipe.row_tokens
        cost = FlopCost.of(config) if train.packing == "trie" else None
        fill = min(_CPU_FILL, row_tokens) if cpu and cost is not None and train.row_tokens is None else None
        return cls(train.packing, train.rows_per_forward, row_tokens, cost, fill)

    def check(self, prepared: Sequence[PreparedRows]) -> None:
        """Check that every sample fits into a row.

        Raises:
            UserError: names the longest that does not.
        """
        if self.packing == "none":
            return
        for rows in prepared:
            number = int(rows.length.argmax())
            if rows.length[number] > self.row_tokens:
                trace = rows.trace_ids[int(rows.trace[number])]
                raise UserError(
                    f"the longest sample (trace {trace}, step {rows.step[number]}) has {rows.length[number]} tokens, "
                    f"but a row takes {self.row_tokens}",
                    where="train.row_tokens",
                    fix=f"set train.row_tokens={rows.length[number]} or more, or leave out what is longer: "
                    f"data.max_length={self.row_tokens} data.overlong=drop",
                )


def traces_in(rows: PreparedRows, numbers: Sequence[int]) -> list[range]:
    """Rows that are one trie: those of a trace that follow each other without a gap."""
    chosen = np.asarray(numbers, dtype=np.int64)
    ends = (np.diff(chosen) != 1) | (np.diff(rows.trace[chosen]) != 0)
    stops = [*(np.flatnonzero(ends) + 1).tolist(), len(chosen)]
    starts = [0, *stops[:-1]]
    return [range(int(chosen[start]), int(chosen[stop - 1]) + 1) for start, stop in zip(starts, stops, strict=True)]


def split_trace(rows: PreparedRows, samples: range, row_tokens: int) -> list[range]:
    """The rows of one trie, or of several where one would be too long."""
    if trie_size(rows, samples)[0] <= row_tokens:
        return [samples]
    shared = _shared(rows, samples)
    new = rows.length[samples.start : samples.stop] - shared
    return [samples[run.start : run.stop] for run in split(new.tolist(), shared.tolist(), row_tokens)]


def trie_size(rows: PreparedRows, samples: range) -> tuple[int, int]:
    """Tokens of a trie, and pairs of a token and one that it sees (itself among them): the sum of position + 1."""
    length = rows.length[samples.start : samples.stop].astype(np.int64)
    shared = _shared(rows, samples)
    return int((length - shared).sum()), int((length * (length + 1) - shared * (shared + 1)).sum()) // 2


def _shared(rows: PreparedRows, samples: range) -> np.ndarray:
    """What each sample of a trie has in common with the one before: the first has none before it."""
    shared = rows.shared[samples.start : samples.stop].astype(np.int64)
    shared[0] = 0
    return shared


def deal_rows(
    rows: PreparedRows, numbers: Sequence[int], layout: RowLayout, *, world_size: int
) -> tuple[tuple[Forward, ...], ...]:
    """The forward passes over these rows: ``result[rank][forward]``, every rank as many.

    A rank without a row left repeats the shortest one, or the shortest trie, with weight 0.
    """
    if layout.cost is None:
        lengths = rows.length[np.asarray(numbers, dtype=np.int64)].tolist()
        return deal(numbers, lengths, world_size=world_size, rows_per_forward=layout.rows_per_forward)
    tries = [trie for trace in traces_in(rows, numbers) for trie in split_trace(rows, trace, layout.row_tokens)]
    tokens, pairs = zip(*(trie_size(rows, trie) for trie in tries), strict=True)
    costs = [layout.cost(*size) for size in zip(tokens, pairs, strict=True)]
    filler = Forward(tuple(tries[tokens.index(min(tokens))]), filler=True)
    budget = layout.fill or layout.row_tokens
    sizes = [min(size, budget) for size in tokens]  # a longer trie fills a row
    return tuple(
        tuple(Forward(tuple(chain.from_iterable(tries[trie] for trie in row))) if row else filler for row in dealt)
        for dealt in deal_tries(sizes, costs, budget=budget, ranks=world_size)
    )
