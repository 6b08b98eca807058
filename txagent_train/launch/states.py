"""The bytes of weights, gradients and optimizer states that one rank keeps, as each engine keeps them.

single, ddp     everything whole. With an adapter: the base in the recipe's dtype, the adapter in fp32. Full: all fp32.
fsdp2           the same dtypes, each tensor cut along its first dimension; a shard is padded to the largest.
zero3           everything in the recipe's dtype, each tensor cut as a flat one and padded; of what is trained also an
                fp32 copy, which AdamW updates, and a buffer for the gradients in the recipe's dtype.
zero3_offload   as zero3, in the memory of the CPU, with fp32 gradients besides.

Moments of AdamW are in the dtype of what it updates. Its step counters (4 bytes a tensor) are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from txagent_train.models.parameters import Parameter, Sizes

Engine = Literal["single", "ddp", "fsdp2", "zero3", "zero3_offload"]
"""What keeps the weights; several strategies may use one."""

_FP32 = 4
_NF4_BLOCK, _NF4_SUPERBLOCK = 64, 256
"""Weights to an 8-bit scale, and scales to an fp32 one (double quantization)."""
_NF4_TABLES = (16 + 256 + 1) * 4
"""Code tables and offset of each quantized tensor."""
_ADAM8_LEAST, _ADAM8_BLOCK = 4096, 256
"""Smaller tensors have fp32 moments (bitsandbytes' min_8bit_size); moments to an fp32 scale."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What of a recipe and its model decides the memory. ``compute_bytes``: of one number in the recipe's dtype."""

    parameters: tuple[Parameter, ...]
    sizes: Sizes
    full: bool
    compute_bytes: int
    optimizer: str = "adamw_torch"
    nf4: bool = False

    @property
    def adapter_inputs(self) -> list[Parameter]:
        """The first factors of an adapter, [rank, width of the layer's input]."""
        return [item for item in self.parameters if item.name.endswith(".lora_A.weight")]

    def adapter_bytes(self, engine: Engine) -> int:
        """Of one number of an adapter: fp32, but for ZeRO-3 and for a quantized base (TRL takes bf16 there)."""
        return self.compute_bytes if engine.startswith("zero3") or self.nf4 else _FP32

    def element_bytes(self, item: Parameter, engine: Engine) -> int:
        """Of one number of a weight that is not quantized, and of its gradient."""
        if engine.startswith("zero3"):
            return self.compute_bytes
        if item.part == "adapter":
            # TRL leaves DoRA's magnitudes in fp32: their updates are too small for bf16.
            return _FP32 if "magnitude" in item.name else self.adapter_bytes(engine)
        # accelerate keeps whatever FSDP2 trains in fp32.
        trained_shard = engine == "fsdp2" and item.trainable and not self.nf4
        return _FP32 if self.full or trained_shard else self.compute_bytes

    def stored_bytes(self, item: Parameter, engine: Engine, *, gathered: bool = False) -> int:
        """Of a whole tensor; ``gathered``: as the engine gathers it to compute with."""
        if self.nf4 and item.part == "matrix":
            scales = ceil(item.numel / _NF4_BLOCK)
            return ceil(item.numel / 2) + scales + 4 * ceil(scales / _NF4_SUPERBLOCK) + _NF4_TABLES
        return item.numel * (self.compute_bytes if gathered else self.element_bytes(item, engine))


@dataclass(frozen=True, slots=True)
class States:
    """Bytes that one rank keeps: on the GPU, and on the host. ``optimizer`` has ZeRO's fp32 weights in it."""

    weights: int
    gradients: int
    optimizer: int
    host: int = 0


def local_numel(shape: tuple[int, ...], engine: Engine, ranks: int) -> int:
    """Numbers of a tensor that the rank with most of it holds, padding included."""
    if engine in ("single", "ddp"):
        return prod(shape)
    if engine == "fsdp2":
        return ceil(shape[0] / ranks) * prod(shape[1:])
    return ceil(prod(shape) / ranks)


def states(setup: Setup, engine: Engine, *, ranks: int) -> States:
    """What the rank with most keeps between and during optimizer steps."""
    weights = gradients = optimizer = 0
    zero3 = engine.startswith("zero3")
    for item in setup.parameters:
        local = local_numel(item.shape, engine, ranks)
        if setup.nf4 and item.part == "matrix":
            share = 1 if engine in ("single", "ddp") else ranks
            weights += ceil(setup.stored_bytes(item, engine) / share)
        else:
            weights += local * setup.element_bytes(item, engine)
        if item.trainable:
            gradients += local * setup.element_bytes(item, engine)
            updated = _FP32 if zero3 else setup.element_bytes(item, engine)
            optimizer += _moments(setup.optimizer, local, updated) + (local * _FP32 if zero3 else 0)
            if engine == "zero3_offload":
                gradients += local * _FP32
    if engine == "zero3_offload":
        return States(0, 0, 0, host=weights + gradients + optimizer)
    return States(weights, gradients, optimizer)


def _moments(optimizer: str, numel: int, element_bytes: int) -> int:
    """Both moments of AdamW."""
    if "8bit" not in optimizer:
        return 2 * numel * element_bytes
    return 2 * numel * _FP32 if numel < _ADAM8_LEAST else 2 * (numel + ceil(numel / _ADAM8_BLOCK) * 4)
