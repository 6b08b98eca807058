"""What is about to run, and whether it is what was asked for."""

from __future__ import annotations

import logging
import os

from accelerate.utils import DistributedType

from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import EnvironmentFailure
from txagent_train.core.records import JsonObject
from txagent_train.packing.attention import attention_kernel
from txagent_train.sft.prepare import describe
from txagent_train.sft.recorder import parameter_count
from txagent_train.sft.token_plan import TokenPlan
from txagent_train.sft.trainer import TraceTrainer

_log = logging.getLogger(__name__)


def asked_for_sharding() -> DistributedType | None:
    """The sharding that the launcher's configuration asks for, through accelerate's environment variables."""
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        return DistributedType.FSDP
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        return DistributedType.DEEPSPEED
    return None


def check_as_asked(trainer: TraceTrainer, recipe: SftRecipe) -> None:
    """What was asked for is what will run; libraries fall back silently.

    Raises:
        EnvironmentFailure: names what is different.
    """
    asked = asked_for_sharding()
    strategy = trainer.accelerator.distributed_type
    if asked is not None and strategy != asked:
        raise EnvironmentFailure(f"{asked.value} was asked for, but {strategy.value} would run, which shards nothing")
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if trainer.args.world_size != launched:
        raise EnvironmentFailure(
            f"{launched} processes were launched, but each would train alone (world size {trainer.args.world_size})"
        )
    model = trainer.accelerator.unwrap_model(trainer.model)
    kernel = getattr(model.config, "_attn_implementation", None)
    asked_kernel = attention_kernel(recipe.model.attn_implementation, recipe.train.packing)
    if kernel != asked_kernel:
        raise EnvironmentFailure(f"attention {asked_kernel} was asked for, but {kernel} would run")


def start_statement(trainer: TraceTrainer, done: int) -> JsonObject:
    """What is about to run, for the log and the record."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    sizes = [(parameter_count(item), item.requires_grad) for item in model.parameters()]
    plan = trainer.plan
    tokens = TokenPlan.of(plan, trainer.layout, ranks=trainer.args.world_size).total
    asked = trainer.recipe.train.max_steps
    if asked is not None and asked > len(plan.steps):
        _log.warning(
            "train.max_steps is %d, but train.epochs=%d ends after %d steps, which is what is planned",
            asked,
            len(plan.epochs),
            len(plan.steps),
        )
    return {
        "strategy": trainer.accelerator.distributed_type.value,
        "world_size": trainer.args.world_size,
        "device": trainer.args.device.type,
        "dtype": "bfloat16" if trainer.args.bf16 else str(model.dtype).removeprefix("torch."),
        "attention": model.config._attn_implementation,
        "trainable_parameters": sum(size for size, trainable in sizes if trainable),
        "total_parameters": sum(size for size, _ in sizes),
        "optimizer_steps": len(plan.steps),
        "steps_done": done,
        "packing": trainer.layout.packing,
        "tokens_per_step": round(tokens.computed / tokens.steps),
        "naive_tokens": tokens.naive,
        "computed_tokens": tokens.computed,
        "sharing_ratio": round(tokens.sharing_ratio, 3),
        "padding_tokens": tokens.padding,
        "samples": describe(plan.epochs[0].report),
    }
