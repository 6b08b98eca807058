"""Who sees whom in a row of a trie, as a dense mask: the way for CPUs, and what faster ways are compared with."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_mask(end: Tensor) -> Tensor:
    """The mask for scaled dot product attention: [B, 1, U, U], True where query q sees key k.

    Args:
        end: [B, U], see packing.trie. Padding behind a trie has end[k] = k + 1: it sees itself, and is seen by nothing.
    """
    places = torch.arange(end.shape[1], device=end.device)
    queries, keys = places[:, None], places[None, :]
    return ((keys <= queries) & (queries < end[:, None, :]))[:, None]
