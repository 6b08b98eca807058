"""From prepared rows to the tensors of forward passes: row by row, or as one row of tries (sft.layout, packing.trie).

Single rows are padded on the right and no padding mask is given: attention is causal, so what stands to the right of a
token never reaches it. The mask of ones keeps the fast attention kernels, and keeps the model code from guessing
packed documents from positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from txagent_train.packing.attention import attention_inputs
from txagent_train.packing.trie import TokenTrie, build_trie
from txagent_train.sft.layout import Packing, traces_in
from txagent_train.sft.plan import LossReduction
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The tensors of one forward pass, on the CPU: B rows (or tries) of T tokens, N triples in all.

    ``rows`` are the numbers of the prepared rows; of a filler, all weights are 0. ``tokens`` counts what is computed,
    without padding. ``position`` and ``end`` belong to tries, and are None for single rows.
    """

    input_ids: Tensor  # [B, T]
    predictors: Tensor  # [N], into the flattened [B * T]
    targets: Tensor  # [N]
    weights: Tensor  # [N], float64
    row_of_triple: Tensor  # [N], into rows
    rows: tuple[int, ...]
    tokens: int
    filler: bool
    position: Tensor | None = None  # [B, T]
    end: Tensor | None = None  # [B, T]

    def model_inputs(self, device: torch.device, model_dtype: torch.dtype, kernel: str) -> dict[str, Any]:
        """The arguments of a model patched by loss.add_target_loss.

        Args:
            kernel: the model's attention implementation.
        """
        weight_dtype = torch.promote_types(model_dtype, torch.float32)
        input_ids = self.input_ids.to(device)
        if self.position is None or self.end is None:
            attention = {"attention_mask": torch.ones_like(input_ids)}
        else:
            attention = attention_inputs(self.position, self.end, kernel=kernel, device=device, dtype=model_dtype)
            # Whole blocks of tokens; nothing sees what is added on the right, whatever token it is.
            input_ids = F.pad(input_ids, (0, attention["position_ids"].shape[1] - input_ids.shape[1]))
        return {
            "input_ids": input_ids,
            **attention,
            "predictors": self.predictors.to(device),
            "targets": self.targets.to(device),
            "weights": self.weights.to(device, weight_dtype),
        }


def collate(
    rows: PreparedRows, forward: Forward, *, pad_token_id: int, reduction: LossReduction, packing: Packing = "none"
) -> ForwardBatch:
    """Build the tensors of one forward pass. Token t of a row is predicted where its token t - 1 stands.

    Args:
        packing: ``none``: each row stands by itself, and B is their number. ``trie``: rows of a trace that follow each
            other become one trie, and all tries stand behind each other in one row.
    """
    if packing == "none":
        lines = [[range(number, number + 1)] for number in forward.rows]
    else:
        lines = [traces_in(rows, forward.rows)]
    tries = [_trie(rows, line) for line in lines]
    shape = (len(tries), max(len(trie.ids) for trie in tries))
    input_ids = np.full(shape, pad_token_id, dtype=np.int64)
    position = np.zeros(shape, dtype=np.int64)
    end = np.tile(np.arange(1, shape[1] + 1), (shape[0], 1))
    predictors, targets, weights, row_of_triple = [], [], [], []
    numbers = iter(enumerate(forward.rows))
    for place, trie in enumerate(tries):
        size = len(trie.ids)
        input_ids[place, :size], position[place, :size], end[place, :size] = trie.ids, trie.position, trie.end
        for sample in range(len(trie.shared)):
            index, number = next(numbers)
            supervised = int(rows.supervised[number])
            path = trie.path(sample, last=supervised + 1)
            predictors.append(place * shape[1] + path[:-1])
            targets.append(trie.ids[path[1:]])
            share = rows.weight[number] / (1 if reduction == "token" else supervised)
            weights.append(np.full(supervised, 0.0 if forward.filler else share))
            row_of_triple.append(np.full(supervised, index))
    return ForwardBatch(
        input_ids=torch.from_numpy(input_ids),
        predictors=torch.from_numpy(np.concatenate(predictors)),
        targets=torch.from_numpy(np.concatenate(targets)),
        weights=torch.from_numpy(np.concatenate(weights)),
        row_of_triple=torch.from_numpy(np.concatenate(row_of_triple)),
        rows=forward.rows,
        tokens=0 if forward.filler else sum(len(trie.ids) for trie in tries),
        filler=forward.filler,
        position=torch.from_numpy(position) if packing == "trie" else None,
        end=torch.from_numpy(end) if packing == "trie" else None,
    )


def _trie(rows: PreparedRows, line: Sequence[range]) -> TokenTrie:
    """The tries of a line, one behind the other; the rows of each range are those of one trie."""
    new: list[np.ndarray] = []
    shared: list[int] = []
    for samples in line:
        new += [rows.row(samples.start)[0], *map(rows.new, samples[1:])]
        shared += [0, *rows.shared[samples.start + 1 : samples.stop].tolist()]
    return build_trie(new, shared)
