"""All optimizer steps of a run, in order, over the prepared epochs. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from txagent_train.config.sft import SftRecipe
from txagent_train.sft.layout import RowLayout, deal_rows
from txagent_train.sft.prepare import Preparation
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward, StepPlan, plan_epoch

LossReduction = Literal["token", "sample"]


def total_weight(rows: PreparedRows, numbers: Sequence[int], reduction: LossReduction) -> float:
    """The denominator of the loss over these rows."""
    chosen = np.asarray(numbers, dtype=np.int64)
    per_row = rows.weight[chosen] * (rows.supervised[chosen] if reduction == "token" else 1)
    return float(per_row.sum())


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The steps of a run. ``epochs[step.epoch]`` holds the rows that a step's numbers mean."""

    epochs: tuple[PreparedRows, ...]
    steps: tuple[StepPlan, ...]
    steps_in_epoch: tuple[int, ...]
    reduction: LossReduction

    @classmethod
    def of(
        cls,
        epochs: Sequence[PreparedRows],
        *,
        traces_per_step: int,
        seed: int,
        reduction: LossReduction,
        max_steps: int | None = None,
    ) -> RunPlan:
        """Plan every epoch, and cut after ``max_steps`` steps."""
        plans = [
            plan_epoch(rows.trace.tolist(), traces_per_step=traces_per_step, seed=seed, epoch=number)
            for number, rows in enumerate(epochs)
        ]
        return cls(
            epochs=tuple(epochs),
            steps=tuple(step for plan in plans for step in plan)[:max_steps],
            steps_in_epoch=tuple(len(plan) for plan in plans),
            reduction=reduction,
        )

    def rows_of(self, step: int) -> PreparedRows:
        return self.epochs[self.steps[step].epoch]

    def weight(self, step: int) -> float:
        """The denominator of a step's loss: its total weight over all ranks and forward passes."""
        return total_weight(self.rows_of(step), self.steps[step].rows, self.reduction)

    def forwards(self, step: int, layout: RowLayout, *, world_size: int) -> tuple[tuple[Forward, ...], ...]:
        """The forward passes of a step: ``result[rank][forward]``."""
        return deal_rows(self.rows_of(step), self.steps[step].rows, layout, world_size=world_size)

    def trace_ids(self, step: int) -> list[str]:
        return [self.rows_of(step).trace_ids[trace] for trace in self.steps[step].traces]

    def ends_epoch(self, step: int) -> bool:
        """Whether no later step belongs to the epoch of this one."""
        return step + 1 == len(self.steps) or self.steps[step + 1].epoch != self.steps[step].epoch

    def epoch_after(self, step: int) -> float:
        """Epochs done when the step is done, as a number such as 1.25."""
        epoch = self.steps[step].epoch
        return epoch + (step + 1 - sum(self.steps_in_epoch[:epoch])) / self.steps_in_epoch[epoch]


def plan_run(recipe: SftRecipe, preparation: Preparation) -> RunPlan:
    """The plan of a recipe's run; prepares the epochs that are not prepared yet, and raises as Preparation.epochs."""
    train = recipe.train
    epochs = preparation.epochs(train.epochs, traces_per_step=train.traces_per_step, max_steps=train.max_steps)
    return RunPlan.of(
        epochs,
        traces_per_step=train.traces_per_step,
        seed=recipe.seed,
        reduction=train.loss_reduction,
        max_steps=train.max_steps,
    )
