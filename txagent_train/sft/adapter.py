"""What is trained of a model: low-rank adapters (LoRA, QLoRA), or everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel, set_seed
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from txagent_train.core.errors import ModelError, RecipeError
from txagent_train.models.adapters import attach_adapter, read_adapter_config
from txagent_train.models.quiet import quiet_renames

_HEAD = "lm_head"
# Fields of peft's configuration that the run sets, not the recipe.
_OF_THE_RUN = frozenset(
    ["task_type", "peft_type", "peft_version", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode"]
)


def lora_config(options: Mapping[str, Any], *, recipe: str = "recipe") -> LoraConfig:
    """Build peft's configuration from the recipe's ``adapter.lora`` section.

    Raises:
        RecipeError: an option that peft does not have (with the nearest one that it has), a value that it
            refuses, or the head among the targets.
    """
    known = sorted(name for name in LoraConfig.__dataclass_fields__)
    problems = []
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(f"adapter.lora.{name}: peft.LoraConfig has no such option{hint}")
    for key in ("target_modules", "modules_to_save"):
        if _HEAD in _as_list(options.get(key)):
            # The loss multiplies by the head's weight directly, so an adapter on it would never be trained.
            problems.append(f"adapter.lora.{key}: {_HEAD} cannot be adapted; leave it out")
    if options.get("trainable_token_indices") is not None:
        problems.append("adapter.lora.trainable_token_indices: not supported; no wire format adds tokens")
    for key in ("layer_replication", "alora_invocation_tokens"):
        if options.get(key) is not None:
            problems.append(f"adapter.lora.{key}: not supported; such an adapter cannot be merged")
    problems += _wrong_values(options)
    if problems:
        raise RecipeError(recipe, problems)
    try:
        return LoraConfig(task_type="CAUSAL_LM", **options)
    except (TypeError, ValueError) as error:
        raise RecipeError(recipe, [f"adapter.lora: {error}"]) from error


def _wrong_values(options: Mapping[str, Any]) -> list[str]:
    """What peft would stumble over, or overlook, only when it reaches the layers."""
    problems = []
    expressions = [(key, options.get(key)) for key in ("target_modules", "exclude_modules")]
    for key in ("rank_pattern", "alpha_pattern"):
        value = options.get(key) or {}
        if isinstance(value, Mapping) and all(type(item) is int and item > 0 for item in value.values()):
            expressions += [(key, name) for name in value]
        else:
            problems.append(f"adapter.lora.{key}: must be a mapping from layer names to whole numbers over 0")
    for key, text in expressions:
        if isinstance(text, str):
            try:
                re.compile(text)
            except re.error as error:
                problems.append(f"adapter.lora.{key}: {text!r} is not a regular expression: {error}")
    return problems


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def check_targets(model: PreTrainedModel, config: LoraConfig) -> None:
    """Check that every layer name in ``target_modules`` matches something; peft only asks that one does.

    Raises:
        ModelError: a name matches no layer (names the layers there are); or a tied embedding is in
            ``modules_to_save``, whose copy could not be merged.
    """
    modules = dict(model.named_modules())
    targets = () if isinstance(config.target_modules, str) else map(str, _as_list(config.target_modules))
    for target in sorted(targets):
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            layers = sorted({name.rsplit(".", 1)[-1] for name, module in modules.items() if _is_linear(module)})
            raise ModelError(
                f"the model has no layer {target}",
                where="adapter.lora.target_modules",
                fix=f"its linear layers are: {', '.join(layer for layer in layers if layer != _HEAD)}",
            )
    if model.config.get_text_config().tie_word_embeddings:
        tied = {name.rsplit(".", 1)[-1] for name, module in modules.items() if isinstance(module, nn.Embedding)}
        for name in sorted(tied & set(map(str, _as_list(config.modules_to_save)))):
            raise ModelError(
                f"{name} is tied to the head in this model, so that a copy of it cannot be merged",
                where="adapter.lora.modules_to_save",
                fix="leave it out",
            )


def _check_adapted(model: PeftModel) -> None:
    """Refuse an adapter on the head, which would not be trained, or on embeddings, which could not be merged."""
    base = model.get_base_model()
    for name, module in base.named_modules():
        on_embedding = isinstance(module, BaseTunerLayer) and isinstance(module.get_base_layer(), nn.Embedding)
        if on_embedding or (module is base.get_output_embeddings() and isinstance(module, BaseTunerLayer)):
            raise ModelError(
                f"matches {name}; the head and the embeddings cannot be adapted",
                where="adapter.lora.target_modules",
                fix="leave it out",
            )


def _is_linear(module: nn.Module) -> bool:
    # bitsandbytes' 4-bit layers are nn.Linear too.
    return isinstance(module, nn.Linear)


def add_adapter(
    model: PreTrainedModel, config: LoraConfig, *, init_from: Path | None, seed: int, revision: str | None = None
) -> PeftModel:
    """Freeze the model and add a trainable adapter, random or read from ``init_from``.

    Args:
        revision: of the base model; the adapter names it.

    Raises:
        ModelError: a target matches no layer, or the head or embeddings; or ``init_from`` is no safetensors
            adapter, has other options than the recipe, or does not fit the model.
    """
    check_targets(model, config)
    set_seed(seed)
    # ZeRO-3 gathers parameters of one dtype at a time, so the adapter keeps the model's; otherwise fp32.
    autocast = not is_deepspeed_zero3_enabled()
    if init_from is None:
        try:
            with quiet_renames():
                adapted = get_peft_model(model, config, autocast_adapter_dtype=autocast, revision=revision)
        except (ValueError, TypeError, AttributeError, KeyError, NotImplementedError) as error:
            raise ModelError(f"the adapter does not fit the model: {error}", where="adapter.lora") from error
    else:
        check_same_kind(init_from, config)
        adapted = attach_adapter(model, init_from, trainable=True, autocast=autocast)
    _check_adapted(adapted)
    return adapted


def check_same_kind(folder: Path, config: LoraConfig) -> None:
    """Check that a folder holds a LoRA adapter with the recipe's options, to start from.

    Raises:
        ModelError: lists every option that differs.
    """
    theirs, ours = _options_of(read_adapter_config(folder)), _options_of(config)
    different = [name for name in sorted(ours) if theirs.get(name) != ours[name]]
    if different:
        shown = "".join(f"\n    {name}={theirs.get(name)}, the recipe {ours[name]}" for name in different)
        raise ModelError(
            f"the adapter has other options than the recipe:{shown}",
            where=str(folder),
            fix="set " + " ".join(f"adapter.lora.{name}={theirs.get(name)}" for name in different),
        )


def _options_of(config: LoraConfig) -> dict[str, Any]:
    """The options that a recipe decides, so that equal ones compare equal: sets sorted, empty ones None."""
    found = {}
    for name, value in config.to_dict().items():
        if name not in _OF_THE_RUN:
            found[name] = (sorted(value) if isinstance(value, (set, list, tuple)) else value) or None
    return found
