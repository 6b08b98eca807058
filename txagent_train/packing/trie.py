"""The samples of a trace as one token trie in depth-first order.

    sample 0   a b c | x                  flat      a b c x y z w
    sample 1   a b c   y z | w            position  0 1 2 3 3 4 5
                                          end       7 7 7 4 7 7 7

A token is seen by itself and by what stands below it in the trie, which in depth-first order is one interval:
``visible(q, k) = k <= q < end[k]``. Its position id is its depth. So every token gets the hidden state that it has in
its sample alone, and the prefix is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TokenTrie:
    """U tokens in depth-first order, and where the tokens of each sample are.

    ``ids``, ``position`` and ``end`` are [U]. ``paths[s]``, [T of sample s], are places in these: those of the tokens
    of sample s.
    """

    ids: np.ndarray
    position: np.ndarray
    end: np.ndarray
    paths: tuple[np.ndarray, ...]


def build_trie(new: Sequence[np.ndarray], shared: Sequence[int]) -> TokenTrie:
    """The trie of samples of which each says how many tokens it has in common with the one before.

    Args:
        new: of each sample, the tokens behind the common ones.
        shared: of each sample, how many tokens at its beginning are those of the sample before; 0 for the first.
    """
    sizes = [len(tokens) for tokens in new]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(starts[-1])
    end = np.full(total, total, dtype=np.int64)
    position = np.empty(total, dtype=np.int64)
    paths: list[np.ndarray] = []
    path = np.empty(0, dtype=np.int64)
    for start, size, common in zip(starts[:-1].tolist(), sizes, shared, strict=True):
        end[path[common:]] = start  # this sample leaves the one before here
        position[start : start + size] = np.arange(common, common + size)
        path = np.concatenate([path[:common], np.arange(start, start + size)])
        paths.append(path)
    ids = np.concatenate([np.empty(0, np.int64), *new]).astype(np.int64)
    return TokenTrie(ids, position, end, tuple(paths))
