from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.tries import ROWS, Samples, growing, row_of
from txagent_train.packing.attention import dense_mask
from txagent_train.packing.segments import Segments, segment_attention, segments_of
from txagent_train.packing.trie import TokenTrie

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def test_the_pieces_of_the_picture() -> None:
    row = row_of([[[1, 2, 3, 4, 7, 7, 7], [1, 2, 3, 4, 8, 8], [1, 2, 9, 9, 9]]])
    assert segments_of(row.end) == Segments(chains=((0, 7), (7, 9), (9, 12)), rectangles=((7, 9, 0, 4), (9, 12, 0, 2)))


def test_siblings_share_a_rectangle() -> None:
    row = row_of([[[1, 2, 3], [1, 2, 4], [1, 2, 5], [1, 2, 6]]])
    assert segments_of(row.end).rectangles == ((3, 6, 0, 2),)


@given(ROWS)
def test_each_pair_that_sees_each_other_is_in_one_piece(tries: list[Samples]) -> None:
    row = row_of(tries)
    pieces = segments_of(row.end)
    times = np.zeros((len(row.ids),) * 2, dtype=int)
    for start, stop in pieces.chains:
        times[start:stop, start:stop] += np.tri(stop - start, dtype=int)
    for start, stop, first, last in pieces.rectangles:
        times[start:stop, first:last] += 1
    places = np.arange(len(row.ids))
    visible = (places <= places[:, None]) & (places[:, None] < row.end)
    assert (times == visible).all()
    samples = sum(map(len, tries))
    assert len(pieces.chains) <= samples and len(pieces.rectangles) <= samples - 1


def tensors(
    row: TokenTrie, heads: int, groups: int, size: int, dtype: torch.dtype, spread: float = 1.0
) -> list[Tensor]:
    """Query, key, value, and a gradient of the result, as they lie in memory in a model."""
    generator = torch.Generator().manual_seed(len(row.ids))
    made = []
    for count in (heads, heads // groups, heads // groups, heads):
        values = torch.randn(1, len(row.ids), count, size, generator=generator, dtype=torch.float64)
        made.append((values * spread).to(dtype).transpose(1, 2))
    return made


def results(attention: Attention, inputs: list[Tensor]) -> list[Tensor]:
    """The output, and the gradients of query, key and value."""
    leaves = [item.detach().requires_grad_() for item in inputs[:3]]
    out = attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, inputs[3])]


def by_segments(row: TokenTrie) -> Attention:
    return lambda query, key, value: segment_attention(query, key, value, segments_of(row.end), scale=None)


def by_mask(row: TokenTrie) -> Attention:
    end = torch.from_numpy(row.end)[None]
    return lambda query, key, value: F.scaled_dot_product_attention(
        query, key, value, dense_mask(end, query.dtype), enable_gqa=True
    )


def relative(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


@contextmanager
def threads(number: int) -> Iterator[None]:
    former = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(former)


@given(ROWS, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]))
def test_it_is_exact_on_any_row(tries: list[Samples], groups: int, workers: int) -> None:
    row = row_of(tries)
    inputs = tensors(row, 4, groups, 8, torch.float64)
    with threads(workers):
        got = results(by_segments(row), inputs)
    for mine, wanted in zip(got, results(by_mask(row), inputs), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("prompt", "step", "output"), [(150, 40, 30), (800, 60, 70)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 8e-3)]
)
def test_rows_of_many_tiles(dtype: torch.dtype, tolerance: float, prompt: int, step: int, output: int) -> None:
    row = growing(prompt, step, output, samples=4)
    inputs = tensors(row, 4, 2, 16, dtype)
    exact = results(by_mask(row), [item.double() for item in inputs])
    for got, wanted in zip(results(by_segments(row), inputs), exact, strict=True):
        assert got.dtype is dtype and got.shape == wanted.shape
        assert relative(got, wanted) < tolerance


def test_scores_that_are_far_apart_do_not_overflow() -> None:
    row = growing(20, 10, 5, samples=3)
    inputs = tensors(row, 2, 1, 8, torch.float64, spread=50.0)
    for got, wanted in zip(results(by_segments(row), inputs), results(by_mask(row), inputs), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def test_a_gradient_that_is_one_number_everywhere() -> None:
    """It lies in memory once, and the kernel must not read beyond it."""
    row = row_of([[[1, 2, 3], [1, 4, 5]]])
    inputs = tensors(row, 2, 1, 4, torch.float64)
    ones = torch.ones_like(inputs[3])
    spread_out = results(by_segments(row), [*inputs[:3], ones])
    once = results(by_segments(row), [*inputs[:3], ones[:1, :1, :1, :1].expand_as(ones)])
    assert all(torch.equal(got, wanted) for got, wanted in zip(once, spread_out, strict=True))


@given(ROWS)
def test_what_the_fused_kernel_lacks_goes_by_masks(tries: list[Samples]) -> None:
    """Values of another size than keys, for one; the same way is taken with dropout, and off the CPU."""
    row = row_of(tries)
    query, key, _, _ = tensors(row, 4, 2, 8, torch.float64)
    _, _, value, grad = tensors(row, 4, 2, 6, torch.float64)
    inputs = [query, key, value, grad]
    for got, wanted in zip(results(by_segments(row), inputs), results(by_mask(row), inputs), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_dropout_takes_attention_away() -> None:
    row = growing(20, 10, 5, samples=3)
    query, key, value, _ = tensors(row, 2, 1, 8, torch.float64)
    out = segment_attention(query, key, value, segments_of(row.end), scale=None, dropout=0.99)
    assert (out == 0).all(dim=-1).any()
