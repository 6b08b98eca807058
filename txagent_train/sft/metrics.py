"""What each logged step records: speed, memory, and where the loss comes from."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

_PEAK_TFLOPS = {
    # Dense bf16 peaks from the vendors' data sheets.
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H800": 989.0,
    "GH200": 989.0,
    "B200": 2250.0,
    "A100": 312.0,
    "A800": 312.0,
    "L40S": 362.0,
    "L40": 181.0,
    "RTX 6000 Ada": 364.0,
    "RTX 4090": 165.2,
    "A6000": 154.8,
    "A10": 125.0,
}


def peak_flops(device: torch.device) -> float | None:
    """Dense bf16 peak of the device in FLOP/s; None on a CPU or a GPU that is not in the table."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = [key for key in _PEAK_TFLOPS if key in name]
    return _PEAK_TFLOPS[max(found, key=len)] * 1e12 if found else None


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory held so far: allocated on the GPU, or the resident size of this process on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(kilobytes if sys.platform == "darwin" else kilobytes * 1024)


@dataclass(frozen=True, slots=True)
class FlopModel:
    """Model FLOPs of training, by the usual convention without attention scores.

    Full fine-tuning: 6 N per token (forward 2N, activation gradients 2N, weight gradients 2N). Adapters: 4 N, since
    frozen weights need no weight gradient (counting 6 N would overstate the utilisation by half). N is the number
    of parameters without the embedding table and the head; the head counts at supervised tokens only, as it is
    computed there only.
    """

    body_parameters: int
    head_parameters: int
    flops_per_parameter: int

    @property
    def convention(self) -> str:
        return f"{self.flops_per_parameter}N"

    def step_flops(self, tokens: float, supervised: float) -> float:
        return self.flops_per_parameter * (self.body_parameters * tokens + self.head_parameters * supervised)


class StepSums:
    """Sums over the triples of one optimizer step, by source and by step index.

    Everything is one float64 vector, so that one reduction makes the sums of all ranks.
    """

    _COUNTS = ("tokens", "naive_tokens", "padding")

    def __init__(self, source_names: Sequence[str], steps: int, device: torch.device) -> None:
        self._sources = tuple(source_names)
        self._steps = steps
        size = len(self._COUNTS) + 3 * len(self._sources) + 3 * steps
        self.vector = torch.zeros(size, dtype=torch.float64, device=device)

    def _part(self, start: int, size: int) -> torch.Tensor:
        """[3, size]: weighted nll, weight, supervised tokens."""
        return self.vector[start : start + 3 * size].view(3, size)

    @property
    def _by_source(self) -> torch.Tensor:
        return self._part(len(self._COUNTS), len(self._sources))

    @property
    def _by_step(self) -> torch.Tensor:
        return self._part(len(self._COUNTS) + 3 * len(self._sources), self._steps)

    def add(self, *, nll: torch.Tensor, weights: torch.Tensor, source: torch.Tensor, step: torch.Tensor) -> None:
        """Add triples; all arguments are [N] and on the device of the sums; weights are float64."""
        values = torch.stack((nll.to(torch.float64) * weights, weights, (weights > 0).to(torch.float64)))
        self._by_source.index_add_(1, source, values)
        self._by_step.index_add_(1, step, values)

    def count(self, name: str, amount: float) -> None:
        """Add to one of: tokens (computed, without padding), naive_tokens (of the samples one by one), padding."""
        self.vector[self._COUNTS.index(name)] += amount

    def counted(self, name: str) -> int:
        return int(self.vector[self._COUNTS.index(name)])

    @property
    def weighted_nll(self) -> float:
        return float(self._by_source[0].sum())

    @property
    def supervised(self) -> int:
        return int(self._by_source[2].sum())

    def loss_by_source(self) -> dict[str, float]:
        """The loss of each source that occurred: the weighted mean of -log p over its supervised tokens."""
        total, weight, _ = self._by_source.tolist()
        return {name: total[i] / weight[i] for i, name in enumerate(self._sources) if weight[i] > 0}

    def weight_share(self, names: Collection[str]) -> float:
        """What share of the loss's weight these sources have."""
        weights = self._by_source[1].tolist()
        return sum(weight for name, weight in zip(self._sources, weights, strict=True) if name in names) / sum(weights)

    def supervised_by_source(self) -> dict[str, int]:
        """Supervised tokens of each source that occurred."""
        counts = self._by_source[2].tolist()
        return {name: int(count) for name, count in zip(self._sources, counts, strict=True) if count}

    def supervised_by_step(self) -> dict[str, int]:
        """Supervised tokens of each step index (from 0) that occurred."""
        counts = self._by_step[2].tolist()
        return {str(step): int(count) for step, count in enumerate(counts) if count}


class Stopwatch:
    """Tokens per second of training. The first step is not counted: it compiles and allocates."""

    def __init__(self) -> None:
        self._mark: float | None = None
        self._seconds = 0.0
        self._tokens = 0
        self._supervised = 0

    def step_done(self, tokens: int, supervised: int) -> None:
        """Called at the end of each optimizer step with what it computed."""
        now = time.perf_counter()
        if self._mark is not None:
            self._seconds += now - self._mark
            self._tokens += tokens
            self._supervised += supervised
        self._mark = now

    def resume(self) -> None:
        """Called after something that is not training (evaluation, saving): its time does not count."""
        if self._mark is not None:
            self._mark = time.perf_counter()

    def lap(self) -> tuple[float, int, int] | None:
        """(seconds, tokens, supervised tokens) since the last lap; None if no step was counted."""
        if not self._tokens:
            return None
        lap = (self._seconds, self._tokens, self._supervised)
        self._seconds, self._tokens, self._supervised = 0.0, 0, 0
        return lap
