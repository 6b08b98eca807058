from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from tests.support.tries import growing
from txagent_train.packing import flex as module
from txagent_train.packing.attention import dense_mask
from txagent_train.packing.flex import BLOCK, block_mask, flex, pad_row
from txagent_train.packing.trie import TokenTrie, build_trie

CPU = torch.device("cpu")


def padded(row: TokenTrie) -> tuple[Tensor, Tensor]:
    return pad_row(torch.from_numpy(row.position)[None], torch.from_numpy(row.end)[None])


def chosen(counts: Tensor, numbers: Tensor) -> Tensor:
    """A block mask's list of blocks as truth values [blocks of queries, blocks of keys]."""
    places = torch.arange(numbers.shape[-1])
    listed = places < counts[0, 0, :, None]
    return torch.zeros(len(places), len(places), dtype=torch.bool).scatter_(1, numbers[0, 0].long(), listed)


@st.composite
def long_rows(draw: st.DrawFn) -> TokenTrie:
    """Rows of some blocks, with branches anywhere."""
    new = draw(st.lists(st.integers(1, 300), min_size=1, max_size=6))
    shared, length = [], 0
    for size in new:
        shared.append(draw(st.integers(0, length)))
        length = shared[-1] + size
    tokens = torch.zeros(sum(new), dtype=torch.int64).numpy()
    return build_trie([tokens[:size] for size in new], shared)


@given(long_rows())
def test_blocks_are_as_the_pairs_in_them(row: TokenTrie) -> None:
    _, end = padded(row)
    mask = block_mask(end[0], CPU)
    blocks = end.shape[1] // BLOCK
    visible = (dense_mask(end, torch.float32)[0, 0] == 0).view(blocks, BLOCK, blocks, BLOCK)
    some, full = visible.any(dim=3).any(dim=1), visible.all(dim=3).all(dim=1)
    assert torch.equal(chosen(mask.full_kv_num_blocks, mask.full_kv_indices), full)
    assert torch.equal(chosen(mask.kv_num_blocks, mask.kv_indices), some & ~full)
    assert torch.equal(chosen(mask.full_q_num_blocks, mask.full_q_indices), full.T)
    assert torch.equal(chosen(mask.q_num_blocks, mask.q_indices), (some & ~full).T)
    assert torch.equal(mask.to_dense()[0, 0].bool(), some)


@given(st.integers(1, 300))
def test_padding_fills_blocks_and_sees_itself(length: int) -> None:
    position, end = pad_row(torch.arange(length)[None], torch.full((1, length), length))
    assert position.shape == end.shape and end.shape[1] % BLOCK == 0 and 0 <= end.shape[1] - length < BLOCK
    assert end[0, length:].tolist() == list(range(length + 1, end.shape[1] + 1))


def test_it_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward only and not compiled: on a CPU there is no more of it."""
    monkeypatch.setattr(module, "_compiled", lambda: flex_attention)
    row = growing(200, 90, 30, samples=4)
    _, end = padded(row)
    query, key, value = (torch.randn(1, heads, end.shape[1], 16) for heads in (4, 2, 2))
    with torch.no_grad():
        got = flex(query, key, value, block_mask(end[0], CPU), 0.3)
    wanted = F.scaled_dot_product_attention(
        query, key, value, dense_mask(end, torch.float32), scale=0.3, enable_gqa=True
    )
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
