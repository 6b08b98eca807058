"""Attention over a row of tries without a mask: causal pieces and full rectangles, each one call of the fused kernel.

In depth-first order a row falls into chains, stretches in which each token's parent is the token before it. A chain
sees itself causally. What it sees of earlier chains are their beginnings, up to where it left them, and since the
descendants of a token are one stretch too, "these queries see those keys" is a handful of rectangles without a hole:

    sample 0   a b c d x x x        chains      [a b c d x x x] [y y] [z z z]
    sample 1   a b c d y y          rectangles  queries [y y]   see keys [a b c d]
    sample 2   a b z z z                        queries [z z z] see keys [a b]

S samples make at most S chains and S - 1 rectangles. Each piece is computed by itself; where a query has several, their
results are weighed by the sums of their exponentials, which the kernel returns as logarithms. The backward kernel makes
probabilities from that logarithm and never asks where it comes from: given that of the whole row it returns exactly the
piece's part of the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

_FEW_QUERIES = 768
"""With fewer, the kernel cuts its work into tiles on which 16-bit products lose more than they win: fp32 is faster."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Who sees whom in one row. All places are in the row, all stretches half open.

    ``chains`` are (first, last + 1), side by side from the row's beginning to its end. ``rectangles`` are (first query,
    last query + 1, first key, last key + 1); the queries are whole chains, and come after the keys.
    """

    chains: tuple[tuple[int, int], ...]
    rectangles: tuple[tuple[int, int, int, int], ...]


def segments_of(end: np.ndarray) -> Segments:
    """The pieces of a row, from ``end`` [U] of packing.trie; linear in U."""
    starts = np.flatnonzero(np.concatenate([[True], end[:-1] == np.arange(1, len(end))]))
    stops = np.append(starts[1:], len(end))
    rectangles: list[tuple[int, int, int, int]] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        chain = end[start:stop]  # falls along the chain: who sees a token sees its ancestors
        last_of_level = np.flatnonzero(np.append(chain[1:] != chain[:-1], True))
        queries = stop
        for place in last_of_level[::-1].tolist():
            level = int(chain[place])
            if level > queries:
                rectangles.append((queries, level, start, start + place + 1))
                queries = level
    return Segments(tuple(zip(starts.tolist(), stops.tolist(), strict=True)), tuple(rectangles))


def segment_attention(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, *, scale: float | None, dropout: float = 0.0
) -> Tensor:
    """Attention of one row, piece by piece. Without dropout no mask is made, nor the scores of a whole piece.

    Args:
        query: [1, H, U, D]; ``key`` and ``value``: [1, H or a divisor of it, U, D].
        scale: of the scores; None: 1 / sqrt(D).

    Returns:
        [1, H, U, D], in memory as [1, U, H, D].
    """
    if query.device.type != "cpu" or dropout or value.shape[-1] != query.shape[-1]:
        return _masked(query, key, value, segments, scale, dropout)
    out: Tensor = _SegmentAttention.apply(query, key, value, segments, scale)
    return out


class _SegmentAttention(torch.autograd.Function):  # type: ignore[misc]
    """The pieces through the fused kernel for CPUs. Sums over pieces are in fp32 for 16-bit inputs."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float | None) -> Tensor:
        exact = torch.promote_types(query.dtype, torch.float32)
        out = _like(query, exact)
        log_sum = query.new_empty((query.shape[0], query.shape[2], query.shape[1]), dtype=exact).transpose(1, 2)
        for mine, theirs, causal in _pieces(segments):
            part, log_part = _flash(
                *_inputs(mine, theirs, query, key, value), dropout_p=0.0, is_causal=causal, scale=scale
            )
            whole, so_far = out[:, :, mine], log_sum[:, :, mine]
            if causal:
                whole.copy_(part)
                so_far.copy_(log_part)
            else:
                whole.lerp_(part.to(exact), torch.sigmoid(log_part - so_far).unsqueeze(-1))
                torch.logaddexp(so_far, log_part, out=so_far)
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, log_sum)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, log_sum = ctx.saved_tensors
        exact = torch.promote_types(query.dtype, torch.float32)
        heads, key_heads = query.shape[1], key.shape[1]
        if key_heads % torch.get_num_threads():
            # The kernel shares out key heads among threads: where there are too few, some threads would only wait.
            key, value = (tensor.repeat_interleave(heads // key_heads, dim=1) for tensor in (key, value))
        grads = [_like(tensor, exact) for tensor in (query, key, value)]
        for mine, theirs, causal in _pieces(ctx.segments):
            inputs = _inputs(mine, theirs, query, key, value)
            dtype = inputs[0].dtype
            parts = _flash_backward(
                grad[:, :, mine].to(dtype),
                *inputs,
                out[:, :, mine].to(dtype),
                log_sum[:, :, mine],
                dropout_p=0.0,
                is_causal=causal,
                scale=ctx.scale,
            )
            for whole, place, part in zip(grads, (mine, theirs, theirs), parts, strict=True):
                if causal:
                    whole[:, :, place].copy_(part)
                else:
                    whole[:, :, place].add_(part)
        if key.shape[1] != key_heads:
            grads[1:] = [grad.unflatten(1, (key_heads, -1)).sum(2) for grad in grads[1:]]
        return grads[0].to(query.dtype), grads[1].to(key.dtype), grads[2].to(value.dtype), None, None


def _pieces(segments: Segments) -> Iterator[tuple[slice, slice, bool]]:
    """Queries, keys, and whether causal. Chains come first and cover all: the first result is there to be added to."""
    for start, stop in segments.chains:
        yield slice(start, stop), slice(start, stop), True
    for start, stop, first, last in segments.rectangles:
        yield slice(start, stop), slice(first, last), False


def _inputs(mine: slice, theirs: slice, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """The query, key and value of a piece, in the dtype that it is computed in."""
    parts = [query[:, :, mine], key[:, :, theirs], value[:, :, theirs]]
    if query.dtype.itemsize < 4 and mine.stop - mine.start < _FEW_QUERIES:
        parts = [part.float() for part in parts]
    return parts


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """An empty [B, H, U, D] that lies in memory as the kernel's results do, [B, U, H, D]."""
    batch, heads, length, size = tensor.shape
    return tensor.new_empty((batch, length, heads, size), dtype=dtype).transpose(1, 2)


def _masked(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, scale: float | None, dropout: float
) -> Tensor:
    """Chain by chain with a mask of the chain's own keys: for devices and options the fused kernel does not have."""
    outs = []
    for start, stop in segments.chains:
        seen = [(first, last) for begin, until, first, last in segments.rectangles if begin <= start and stop <= until]
        seen.append((start, stop))
        keys, values = (torch.cat([x[:, :, first:last] for first, last in seen], dim=2) for x in (key, value))
        before = keys.shape[2] - (stop - start)
        mask = torch.ones(stop - start, keys.shape[2], dtype=torch.bool, device=query.device).tril(before)
        outs.append(
            F.scaled_dot_product_attention(
                query[:, :, start:stop], keys, values, mask, dropout_p=dropout, scale=scale, enable_gqa=True
            )
        )
    return torch.cat(outs, dim=2)
