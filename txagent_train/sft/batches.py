"""From prepared rows to the tensors of forward passes: row by row, or a trace's rows as one trie (packing.trie).

Single rows are padded on the right and no padding mask is given: attention is causal, so what stands to the right of a
token never reaches it. The mask of ones keeps the fast attention kernels, and keeps the model code from guessing
packed documents from positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from txagent_train.packing.attention import dense_mask
from txagent_train.packing.trie import TokenTrie, build_trie
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward

LossReduction = Literal["token", "sample"]
Packing = Literal["none", "trie"]


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

    def model_inputs(self, device: torch.device, model_dtype: torch.dtype) -> dict[str, Tensor]:
        """The arguments of a model patched by loss.add_target_loss."""
        weight_dtype = torch.promote_types(model_dtype, torch.float32)
        input_ids = self.input_ids.to(device)
        if self.position is None or self.end is None:
            attention = {"attention_mask": torch.ones_like(input_ids)}
        else:
            attention = {
                "attention_mask": dense_mask(self.end.to(device), model_dtype),
                "position_ids": self.position.to(device),
            }
        return {
            "input_ids": input_ids,
            **attention,
            "predictors": self.predictors.to(device),
            "targets": self.targets.to(device),
            "weights": self.weights.to(device, weight_dtype),
        }


def total_weight(rows: PreparedRows, numbers: Sequence[int], reduction: LossReduction) -> float:
    """The denominator of the loss over these rows."""
    chosen = np.asarray(numbers, dtype=np.int64)
    per_row = rows.weight[chosen] * (rows.supervised[chosen] if reduction == "token" else 1)
    return float(per_row.sum())


def collate(
    rows: PreparedRows, forward: Forward, *, pad_token_id: int, reduction: LossReduction, packing: Packing = "none"
) -> ForwardBatch:
    """Build the tensors of one forward pass. Token t of a row is predicted where its token t - 1 stands.

    Args:
        packing: ``trie``: rows of one trace that follow each other become one trie.
    """
    tries = [_trie(rows, numbers) for numbers in units(rows, forward.rows, packing)]
    shape = (len(tries), max(len(trie.ids) for trie in tries))
    input_ids = np.full(shape, pad_token_id, dtype=np.int64)
    position = np.zeros(shape, dtype=np.int64)
    end = np.tile(np.arange(1, shape[1] + 1), (shape[0], 1))
    predictors, targets, weights, row_of_triple = [], [], [], []
    numbers = iter(enumerate(forward.rows))
    for place, trie in enumerate(tries):
        size = len(trie.ids)
        input_ids[place, :size], position[place, :size], end[place, :size] = trie.ids, trie.position, trie.end
        for path in trie.paths:
            index, number = next(numbers)
            supervised = int(rows.supervised[number])
            predictors.append(place * shape[1] + path[-supervised - 1 : -1])
            targets.append(trie.ids[path[-supervised:]])
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


def units(rows: PreparedRows, numbers: Sequence[int], packing: Packing) -> list[list[int]]:
    """The rows that are computed as one: each alone, or with the rows of its trace beside it."""
    if packing == "none":
        return [[number] for number in numbers]
    return [list(group) for _, group in groupby(numbers, key=lambda number: int(rows.trace[number]))]


def _trie(rows: PreparedRows, numbers: Sequence[int]) -> TokenTrie:
    """The trie of one row, or of several that follow each other in their trace."""
    first = rows.row(numbers[0])[0]
    others = [rows.new(number) for number in numbers[1:]]
    return build_trie([first, *others], [0, *(int(rows.shared[number]) for number in numbers[1:])])
