"""Who sees whom in a row of a trie, as a dense mask: the way for CPUs, and what faster ways are compared with."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_mask(end: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask that is added to attention scores: [B, 1, U, U], 0 where query q sees key k, else the lowest number.

    A mask of numbers, not of truth values: eager attention adds whatever it is given, and on a CPU the fused kernel
    takes a fifth longer with truth values.

    Args:
        end: [B, U], see packing.trie. Padding behind a trie has end[k] = k + 1: it sees itself, and is seen by nothing.
        dtype: that of the attention scores.
    """
    places = torch.arange(end.shape[1], device=end.device)
    queries, keys = places[:, None], places[None, :]
    seen = (keys <= queries) & (queries < end[:, None, :])
    return torch.zeros(seen.shape, dtype=dtype, device=end.device).masked_fill_(~seen, torch.finfo(dtype).min)[:, None]
