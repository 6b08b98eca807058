"""The keys of LLaMA-Factory's settings: their types, their defaults, and what they are called here."""

from __future__ import annotations

from typing import Any

Types = tuple[type, ...]
_TEXT: Types = (str,)
_NUMBER: Types = (float,)
_WHOLE: Types = (int,)
_FLAG: Types = (bool,)
_NAMES: Types = (str, list)

RENAMED = {
    "model_name_or_path": "model.name_or_path",
    "seed": "seed",
    "lora_rank": "adapter.lora.r",
    "lora_dropout": "adapter.lora.lora_dropout",
    "use_dora": "adapter.lora.use_dora",
    "use_rslora": "adapter.lora.use_rslora",
    "cutoff_len": "data.max_length",
    "preprocessing_num_workers": "data.workers",
    "learning_rate": "train.learning_rate",
    "warmup_ratio": "train.warmup_ratio",
    "weight_decay": "train.weight_decay",
    "max_grad_norm": "train.max_grad_norm",
}
"""Keys whose value means the same here, and the key of the recipe that it goes to."""

DEFAULTS: dict[str, Any] = {
    "stage": "sft",
    "finetuning_type": "lora",
    "dataset_dir": "data",
    "seed": 42,
    "lora_rank": 8,
    "lora_dropout": 0.0,
    "lora_target": "all",
    "cutoff_len": 2048,
    "learning_rate": 5.0e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.0,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch",
}
"""What a key that is left out means there (LLaMA-Factory 0.9, transformers.TrainingArguments)."""

TYPES: dict[str, Types] = {
    **dict.fromkeys(
        ("model_name_or_path", "model_revision", "stage", "finetuning_type", "dataset_dir", "template", "flash_attn",
         "lr_scheduler_type", "optim", "output_dir", "run_name", "save_strategy", "eval_strategy"),
        _TEXT,
    ),
    **dict.fromkeys(
        ("lora_dropout", "learning_rate", "num_train_epochs", "warmup_ratio", "weight_decay", "max_grad_norm",
         "val_size", "warmup_steps", "logging_steps", "save_steps", "eval_steps"),
        _NUMBER,
    ),
    **dict.fromkeys(
        ("seed", "lora_rank", "lora_alpha", "cutoff_len", "max_samples", "max_steps", "per_device_train_batch_size",
         "gradient_accumulation_steps", "quantization_bit", "save_total_limit", "preprocessing_num_workers"),
        _WHOLE,
    ),
    **dict.fromkeys(
        ("bf16", "pure_bf16", "mask_history", "use_dora", "use_rslora", "disable_gradient_checkpointing"), _FLAG
    ),
    **dict.fromkeys(
        ("dataset", "eval_dataset", "lora_target", "additional_target", "adapter_name_or_path", "report_to"), _NAMES
    ),
    "resume_from_checkpoint": (str, bool),
}  # fmt: skip
"""Keys that are read, and the types that their value may have."""

FRAMES = {"llama3": "llama3", "qwen": "chatml", "chatml": "chatml", "smollm": "chatml"}
"""Beginnings of the names of templates, and the frame that they are here; others are the tokenizer's (auto)."""

SCHEDULERS = {"cosine": "cosine", "linear": "linear", "constant": "constant", "constant_with_warmup": "constant"}

OPTIMIZERS = {
    "adamw_torch": "adamw_torch",
    "adamw_torch_fused": "adamw_torch_fused",
    "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
}

_PACKING = "rows are always shared, by tries (see train.packing); here that changes the speed, never the loss"
_OVERWRITE = "a run directory that holds another run is never overwritten"
_LAUNCH = "how processes start and shard is said when a run is launched, not in its recipe"
_EVALUATION = "held-out loss is the same for any batch size; it is measured where data.eval names files"
_ALWAYS = "always so: this recipe trains"
_REPORT = "every run has an HTML report with its curves"

WITHOUT = {
    "trust_remote_code": "no code of a model repository is ever executed",
    "do_train": _ALWAYS,
    "do_eval": _EVALUATION,
    "do_predict": "the recipe trains only; `txagent-train evaluate` measures",
    "predict_with_generate": "the recipe trains only; `txagent-train evaluate` measures",
    "per_device_eval_batch_size": _EVALUATION,
    "evaluation_strategy": _EVALUATION,
    "packing": _PACKING,
    "neat_packing": _PACKING,
    "deepspeed": _LAUNCH,
    "fsdp": _LAUNCH,
    "fsdp_config": _LAUNCH,
    "ddp_timeout": _LAUNCH,
    "overwrite_output_dir": _OVERWRITE,
    "overwrite_cache": "prepared tokens are kept by what they were made from: an old cache is never read",
    "tokenized_path": "see data.prepared_dir: prepared tokens are of this package's own form",
    "plot_loss": _REPORT,
    "logging_dir": _REPORT,
    "save_only_model": "a checkpoint always holds what is needed to go on from it",
    "fp16": "16-bit training is in bfloat16 here: set model.dtype",
    "train_on_prompt": "the loss is on the model's own output only",
    "enable_thinking": "hidden reasoning is trained on where the records have it",
    "quantization_method": "quantization is nf4 of bitsandbytes",
    "quantization_type": "quantization is nf4 of bitsandbytes",
    "double_quantization": "quantization is nf4 of bitsandbytes",
    "dataloader_num_workers": "tokens are prepared before training; see data.workers",
    "streaming": "tokens are prepared before training, from files of any size",
    "mix_strategy": "all records of all data sets are taken (concat); data.sources can be weighted",
    "interleave_probs": "all records of all data sets are taken (concat); data.sources can be weighted",
    "data_seed": "there is one seed",
    "tool_format": "calls are <tool_call> blocks, or [TOOL_CALLS] with wire.syntax txagent",
    "default_system": "the system prompt is that of each record",
}
"""Keys that have no counterpart, and why."""
