"""How much a run computes, and for how long. No torch.

Model FLOPs are counted as sft.metrics counts them, and attention besides: its backward pass is twice its forward pass,
whatever is frozen. Gradient checkpointing computes the forward passes of the blocks once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from txagent_train.core.records import JsonObject
from txagent_train.packing.bins import FlopCost


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of a whole run, over all GPUs."""

    model: float
    attention: float
    recompute: float

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        *,
        model_flops: float,
        body_parameters: int,
        tokens: int,
        pairs: int,
        checkpointing: bool,
    ) -> Work:
        """Count the rest.

        Args:
            config: the names of config.json.
            model_flops: of the matrix products.
            body_parameters: without the embedding and the head.
            tokens: computed, without what stands for nothing.
            pairs: of a token and one that it sees.
        """
        scores = float(FlopCost.of(config).per_pair * config["num_hidden_layers"] * pairs)
        again = 2.0 * body_parameters * tokens + scores if checkpointing else 0.0
        return cls(model=model_flops, attention=3 * scores, recompute=again)

    @property
    def total(self) -> float:
        return self.model + self.attention + self.recompute

    def hours(self, *, gpus: int, tflops: float, utilisation: float) -> float:
        """At a share of the GPUs' peak, in which recomputation counts as work."""
        return self.total / (gpus * tflops * 1e12 * utilisation) / 3600

    def to_json(self) -> JsonObject:
        return asdict(self) | {"total": self.total}
