from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tries import row_of
from txagent_train.packing.attention import dense_mask
from txagent_train.packing.trie import TokenTrie

SAMPLES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=10), min_size=1, max_size=6)


def trie_of(samples: list[list[int]]) -> TokenTrie:
    return row_of([samples])


def paths_of(trie: TokenTrie) -> list[np.ndarray]:
    return [trie.path(sample) for sample in range(len(trie.shared))]


def test_the_trie_of_the_picture() -> None:
    trie = trie_of([[1, 2, 3, 24], [1, 2, 3, 25, 26, 23]])
    assert trie.ids.tolist() == [1, 2, 3, 24, 25, 26, 23]
    assert trie.position.tolist() == [0, 1, 2, 3, 3, 4, 5]
    assert trie.end.tolist() == [7, 7, 7, 4, 7, 7, 7]
    assert [path.tolist() for path in paths_of(trie)] == [[0, 1, 2, 3], [0, 1, 2, 4, 5, 6]]


@given(SAMPLES)
def test_along_its_path_each_sample_is_as_it_is_alone(samples: list[list[int]]) -> None:
    """Also where a sample is the beginning of another, or the same as another."""
    trie = trie_of(samples)
    mask = dense_mask(torch.from_numpy(trie.end)[None], torch.float32)[0, 0].numpy() == 0
    for sample, path in zip(samples, paths_of(trie), strict=True):
        assert trie.ids[path].tolist() == sample
        assert trie.position[path].tolist() == list(range(len(sample)))
        for depth, place in enumerate(path):
            assert np.flatnonzero(mask[place]).tolist() == path[: depth + 1].tolist(), "it sees its ancestors alone"


@given(SAMPLES)
def test_what_neighbours_have_in_common_is_there_once(samples: list[list[int]]) -> None:
    trie = trie_of(sorted(samples))  # sorted, so that all that can be shared is shared with the neighbour
    prefixes = {tuple(sample[: size + 1]) for sample in samples for size in range(len(sample))}
    assert len(trie.ids) == len(prefixes)


def test_padding_sees_itself_and_is_seen_by_nothing() -> None:
    mask = dense_mask(torch.tensor([[2, 2, 3, 4]]), torch.bfloat16)[0, 0]
    assert (mask == 0).tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]
