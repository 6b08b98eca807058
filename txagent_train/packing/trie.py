"""The samples of a trace as one token trie in depth-first order.

    sample 0   a b c | x                  flat      a b c x y z w
    sample 1   a b c   y z | w            position  0 1 2 3 3 4 5
                                          end       7 7 7 4 7 7 7

A token is seen by itself and by what stands below it in the trie, which in depth-first order is one interval:
``visible(q, k) = k <= q < end[k]``. Its position id is its depth. So every token gets the hidden state that it has in
its sample alone, and the prefix is computed once. A row of several tries, one behind the other, needs nothing more: a
sample that has nothing in common with the one before begins a new root, and roots do not see each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TokenTrie:
    """U tokens of S samples in depth-first order.

    ``ids``, ``position`` and ``end`` are [U]. Sample s brings the tokens from place ``starts[s]`` to ``starts[s + 1]``,
    behind the ``shared[s]`` tokens that it has in common with the sample before; they are [S + 1] and [S].
    """

    ids: np.ndarray
    position: np.ndarray
    end: np.ndarray
    starts: np.ndarray
    shared: np.ndarray

    def path(self, sample: int, last: int | None = None) -> np.ndarray:
        """Where the ``last`` tokens of a sample are (None: all of them), as places in the arrays, ascending."""
        depth = int(self.shared[sample] + self.starts[sample + 1] - self.starts[sample])
        places = np.empty(depth if last is None else last, dtype=np.int64)
        missing = len(places)
        while missing:  # backwards: what this sample brings, then what is left of the one before, and so on
            begin, brought = int(self.starts[sample]), int(depth - self.shared[sample])
            if brought > 0:
                taken = min(brought, missing)
                places[missing - taken : missing] = np.arange(begin + brought - taken, begin + brought)
                missing, depth = missing - taken, depth - brought
            sample -= 1
        return places


def build_trie(new: Sequence[np.ndarray], shared: Sequence[int]) -> TokenTrie:
    """The trie of samples of which each says how many tokens it has in common with the one before; linear in U.

    Args:
        new: of each sample, the tokens behind the common ones.
        shared: of each sample, how many tokens at its beginning are those of the sample before; 0 for the first, and
            for the first of each further trie of a row.
    """
    starts = np.cumsum([0, *map(len, new)])
    total = int(starts[-1])
    end = np.full(total, total, dtype=np.int64)
    position = np.empty(total, dtype=np.int64)
    # The path of the sample before, as stretches (depth, place, size) of tokens that stand side by side.
    path: list[tuple[int, int, int]] = []
    for start, tokens, common in zip(starts[:-1].tolist(), new, shared, strict=True):
        while path and path[-1][0] + path[-1][2] > common:  # this sample leaves the one before within the stretch
            depth, place, size = path.pop()
            kept = max(common - depth, 0)
            end[place + kept : place + size] = start
            if kept:
                path.append((depth, place, kept))
        position[start : start + len(tokens)] = np.arange(common, common + len(tokens))
        path.append((common, start, len(tokens)))
    ids = np.concatenate(new).astype(np.int64)
    return TokenTrie(ids, position, end, starts, np.asarray(shared, dtype=np.int64))
