"""The arguments of the parent trainer, made from the recipe."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from trl import SFTConfig

from txagent_train.config.sft import SftRecipe
from txagent_train.models.quiet import quiet_renames

_OPTIMIZERS = {"adamw_8bit": "adamw_bnb_8bit"}


def training_arguments(recipe: SftRecipe, *, output_dir: Path, steps: int, dtype: torch.dtype) -> SFTConfig:
    """The parent trainer's arguments. Making them initialises the process group.

    Epochs, batches, logging, evaluation and saving are ours: the parent sees one epoch of ``steps`` batches.
    """
    with quiet_renames():
        args = _sft_config(recipe, output_dir, steps, dtype)
    # A process has one device. Left alone, the parent would spread the model over all that it sees (nn.DataParallel).
    args._n_gpu = min(1, args.n_gpu)
    return args


def _sft_config(recipe: SftRecipe, output_dir: Path, steps: int, dtype: torch.dtype) -> SFTConfig:
    train = recipe.train
    return SFTConfig(
        output_dir=str(output_dir),
        max_steps=steps,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=1,
        learning_rate=train.learning_rate,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        optim=_OPTIMIZERS.get(train.optimizer, train.optimizer),
        seed=recipe.seed,
        bf16=dtype is torch.bfloat16,
        # Without it, several processes on CPUs would each train alone. Who names the device has settled it.
        use_cpu=not torch.cuda.is_available() and "ACCELERATE_TORCH_DEVICE" not in os.environ,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
    )
