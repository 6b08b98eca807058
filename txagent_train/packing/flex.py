"""Attention over a row of tries on a GPU: FlexAttention, with a block mask made from the intervals of the row.

A block is 128 queries x 128 keys. Whether its queries see all, some or none of its keys follows from the first and the
last query and from the smallest and the largest ``end`` of the keys. So the mask is made without looking at a pair of
tokens; only in blocks of which some is seen does the kernel ask for each pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128
"""Tokens to a block's side; the kernel's own block size divides it."""


def pad_row(position: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """``position`` and ``end`` [1, U] of a row padded to whole blocks: padding is seen by itself alone."""
    length = end.shape[1]
    missing = -length % BLOCK
    own = torch.arange(length + 1, length + missing + 1, dtype=end.dtype)
    return F.pad(position, (0, missing)), torch.cat([end, own[None]], dim=1)


def block_mask(end: Tensor, device: torch.device) -> BlockMask:
    """Who sees whom in a row of whole blocks; ``end`` [U] of packing.trie, on the CPU."""
    blocks = end.view(-1, BLOCK)
    first = torch.arange(len(blocks))[:, None] * BLOCK  # query of each block
    keys = first.T
    before = keys < first
    # Queries behind a block of keys see those keys whose end is behind them.
    full = before & (blocks.amin(1) >= first + BLOCK)
    some = (keys == first) | (before & (blocks.amax(1) > first) & ~full)
    on_device = end.to(device)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < on_device[key])

    return BlockMask.from_kv_blocks(
        *_listed(some, device), *_listed(full, device), BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(len(end),) * 2
    )


def _listed(chosen: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Of each block of queries, how many blocks of keys are chosen, and their numbers; then the others'."""
    numbers = torch.argsort(chosen.int(), dim=1, descending=True, stable=True)
    return tuple(item.to(device, torch.int32)[None, None] for item in (chosen.sum(1), numbers))


def flex(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float | None) -> Tensor:
    """[1, H, U, D] from a ``query`` like it, ``key`` and ``value`` [1, H or a divisor of it, U, D]."""
    return _compiled()(query, key, value, block_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1])


@cache
def _compiled() -> Callable[..., Tensor]:
    # Dynamic: one kernel for rows of any length; sizes that happen to be equal, such as blocks and heads, still make
    # another one each. Full graph: where there are too many, an error and not the function as it is, which makes all
    # scores at once.
    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=True, fullgraph=True, recompile_limit=64)
    return compiled
