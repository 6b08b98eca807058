"""How the devices share a training, and the configurations of accelerate and DeepSpeed that say so.

single            one device
ddp               every device holds the whole model
fsdp2             PyTorch shards weights, gradients and optimizer states over the devices of one node
fsdp2_multinode   the same over the devices of several nodes
zero3             DeepSpeed shards them
zero3_offload     and the shards lie in the memory of the host
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from txagent_train.config.shipped import shipped_folder
from txagent_train.core.errors import UserError, known_names

Strategy = Literal["single", "ddp", "fsdp2", "fsdp2_multinode", "zero3", "zero3_offload"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

_DEEPSPEED: Mapping[Strategy, str] = {"zero3": "zero3.json", "zero3_offload": "zero3_offload.json"}


def strategy_named(name: str) -> Strategy:
    """Look up a strategy.

    Raises:
        UserError: there is none of that name.
    """
    for strategy in STRATEGIES:
        if strategy == name:
            return strategy
    raise UserError("no such strategy", where=name, fix=known_names(name, STRATEGIES))


def accelerate_config(strategy: Strategy) -> Path:
    """The accelerate configuration of a strategy."""
    return shipped_folder("accelerate_configs") / f"{strategy}.yaml"


def deepspeed_config(strategy: Strategy) -> Path | None:
    """The DeepSpeed configuration of a strategy, where it has one.

    accelerate_config names it too, but relative to a checkout.
    """
    name = _DEEPSPEED.get(strategy)
    return None if name is None else shipped_folder("deepspeed_configs") / name
