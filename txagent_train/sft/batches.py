"""From prepared rows to the tensors of forward passes.

Rows are padded on the right and no padding mask is given: attention is causal, so what stands to the right of a
token never reaches it. The mask of ones keeps the fast attention kernels, and keeps the model code from guessing
packed documents from positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward

LossReduction = Literal["token", "sample"]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """The tensors of one forward pass, on the CPU: B rows of T tokens, N triples in all.

    ``rows`` are the numbers of the rows; of a filler, all weights are 0. ``tokens`` counts without padding.
    """

    input_ids: Tensor  # [B, T]
    predictors: Tensor  # [N], into the flattened [B * T]
    targets: Tensor  # [N]
    weights: Tensor  # [N], float64
    row_of_triple: Tensor  # [N], into rows
    rows: tuple[int, ...]
    tokens: int
    filler: bool

    def model_inputs(self, device: torch.device, weight_dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """The arguments of a model patched by loss.add_target_loss."""
        input_ids = self.input_ids.to(device)
        return {
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids),
            "predictors": self.predictors.to(device),
            "targets": self.targets.to(device),
            "weights": self.weights.to(device, weight_dtype),
        }


def total_weight(rows: PreparedRows, numbers: Sequence[int], reduction: LossReduction) -> float:
    """The denominator of the loss over these rows."""
    chosen = np.asarray(numbers, dtype=np.int64)
    per_row = rows.weight[chosen] * (rows.supervised[chosen] if reduction == "token" else 1)
    return float(per_row.sum())


def collate(rows: PreparedRows, forward: Forward, *, pad_token_id: int, reduction: LossReduction) -> ForwardBatch:
    """Build the tensors of one forward pass. Token t of a row is predicted at its position t - 1."""
    samples = [rows.row(number) for number in forward.rows]
    width = max(len(ids) for ids, _ in samples)
    input_ids = np.full((len(samples), width), pad_token_id, dtype=np.int64)
    predictors, targets, weights, row_of_triple = [], [], [], []
    for place, ((ids, mask), number) in enumerate(zip(samples, forward.rows, strict=True)):
        input_ids[place, : len(ids)] = ids
        positions = np.flatnonzero(mask)  # never 0: preparation refuses a supervised first token
        predictors.append(place * width + positions - 1)
        targets.append(ids[positions].astype(np.int64))
        share = rows.weight[number] / (1 if reduction == "token" else rows.supervised[number])
        weights.append(np.full(len(positions), 0.0 if forward.filler else share))
        row_of_triple.append(np.full(len(positions), place))
    return ForwardBatch(
        input_ids=torch.from_numpy(input_ids),
        predictors=torch.from_numpy(np.concatenate(predictors)),
        targets=torch.from_numpy(np.concatenate(targets)),
        weights=torch.from_numpy(np.concatenate(weights)),
        row_of_triple=torch.from_numpy(np.concatenate(row_of_triple)),
        rows=forward.rows,
        tokens=0 if forward.filler else sum(len(ids) for ids, _ in samples),
        filler=forward.filler,
    )
