"""Trains tiny models for one step with a real engine, and writes the bytes that each rank keeps.

``torchrun -m tests.distributed.measure_states ENGINE OUT`` with two processes for ddp, fsdp2 and zero3; alone for
single. OUT-RANK.json holds one record for each case of tests.support.tiny_shapes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, set_seed

from tests.support.tiny_shapes import LORA, tiny_cases, tiny_shape
from txagent_train.sft.adapter import lora_config

Bytes = dict[str, int]


def make_model(family: str, tied: bool, method: str, *, fp32_adapter: bool) -> Any:
    """As sft.run loads it: fp32 to train all of it, else bf16 with an adapter."""
    from peft import get_peft_model

    set_seed(0)
    fields = dict(tiny_shape(family, tied=tied))
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if method == "full" else torch.bfloat16)
    if method == "full":
        return model
    return get_peft_model(model, lora_config(LORA), autocast_adapter_dtype=fp32_adapter)


def size(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of what is here of these tensors: a shard with its padding."""
    local = [item.to_local() if isinstance(item, DTensor) else item for item in tensors if item is not None]
    return sum(item.numel() * item.element_size() for item in local)


def moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if value.dim() > 0]


def with_accelerate(family: str, tied: bool, method: str, plugin: FullyShardedDataParallelPlugin | None) -> Bytes:
    AcceleratorState._reset_state()  # it would keep the first plugin, which wraps the layers of the first family
    GradientState._reset_state()
    if plugin is not None:
        PartialState().distributed_type = DistributedType.MULTI_GPU  # as before the last case
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin, cpu=plugin is None)
    model = make_model(family, tied, method, fp32_adapter=True)
    optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad])
    model, optimizer = accelerator.prepare(model, optimizer)
    assert plugin is None or accelerator.distributed_type == DistributedType.FSDP
    ids = torch.arange(4, 20)[None]
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    gradients = size(item.grad for item in model.parameters())
    optimizer.step()
    return {
        "weights": size(model.parameters()),
        "gradients": gradients,
        "optimizer": size(moments(optimizer.optimizer)),
    }


def with_deepspeed(family: str, tied: bool, method: str) -> Bytes:
    import deepspeed

    model = make_model(family, tied, method, fp32_adapter=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 200, "reduce_bucket_size": 400},
    }
    optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad])
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    ids = torch.arange(4, 20)[None]
    engine.backward(engine(input_ids=ids, labels=ids).loss)
    engine.step()
    zero = engine.optimizer
    return {
        "weights": size(item.ds_tensor for item in model.parameters()),
        "gradients": size([zero.grad_partitions_flat_buffer]),
        "optimizer": size(zero.fp32_partitioned_groups_flat) + size(moments(zero.optimizer)),
    }


def main(engine: str, out: str) -> None:
    if engine == "fsdp2":
        # On a CPU accelerate shards nothing unless it is told of several GPUs.
        PartialState._prepare_backend = lambda self, *args, **kwargs: ("gloo", DistributedType.MULTI_GPU)
    if engine == "zero3":
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")
    found = []
    for family, tied, method in tiny_cases():
        if engine == "zero3":
            measured = with_deepspeed(family, tied, method)
        else:
            plugin = None
            if engine == "fsdp2":
                plugin = FullyShardedDataParallelPlugin(
                    fsdp_version=2,
                    reshard_after_forward=True,
                    auto_wrap_policy="transformer_based_wrap",
                    cpu_ram_efficient_loading=False,
                )
            measured = with_accelerate(family, tied, method, plugin)
        found.append({"family": family, "tied": tied, "method": method} | measured)
    Path(f"{out}-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
