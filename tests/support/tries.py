"""Rows of tries for tests, from samples written out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from txagent_train.packing.trie import TokenTrie, build_trie

Samples = Sequence[Sequence[int]]

# Few tokens, so that samples share beginnings, are the same, or are the beginning of another one.
ROWS = st.lists(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=10), min_size=1, max_size=6), min_size=1, max_size=3
)
"""Several tries, each of several samples."""


def row_of(tries: Sequence[Samples]) -> TokenTrie:
    """The tries of these samples, one behind the other; each sample shares what it can with the one before."""
    new, shared = [], []
    for samples in tries:
        for before, sample in itertools.pairwise([[], *samples]):
            common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, sample, strict=False))))
            new.append(np.array(sample[common:], dtype=np.int64))
            shared.append(common)
    return build_trie(new, shared)


def growing(prompt: int, step: int, output: int, samples: int) -> TokenTrie:
    """What a trace looks like: each sample goes on from a prompt that is ``step`` tokens longer than the one before."""
    sizes = [prompt + output] + [step + output] * (samples - 1)
    shared = [0] + [prompt + step * number for number in range(samples - 1)]
    tokens = np.random.default_rng(0).integers(4, 60, sum(sizes))
    return build_trie(np.split(tokens, np.cumsum(sizes)[:-1]), shared)
