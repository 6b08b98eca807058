"""Learning rate over the optimizer steps, as a factor of the recipe's peak."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Shape = Literal["cosine", "linear", "constant"]


def schedule(shape: Shape, *, total_steps: int, warmup_ratio: float) -> Callable[[int], float]:
    """The factor of the learning rate at step ``s`` (from 0): linear warm-up, then ``shape``.

    Every step trains: warm-up begins above 0 and the decay reaches 0 only after the last step. (The usual
    schedule has a factor of 0 at the first step, which makes a run of one step train nothing.)
    """
    warmup = int(total_steps * warmup_ratio)
    decay = max(total_steps - warmup, 1)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        progress = min((step - warmup) / decay, 1.0)
        if shape == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * progress))
        return 1.0 - progress if shape == "linear" else 1.0

    return factor
