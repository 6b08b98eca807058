"""What is trained of a model: low-rank adapters (LoRA, QLoRA), or everything."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import Tensor, nn
from transformers import PreTrainedModel, set_seed
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from txagent_train.core.errors import EnvironmentFailure, ModelError, RecipeError
from txagent_train.models.adapters import read_adapter_config
from txagent_train.models.quiet import quiet_renames
from txagent_train.sft.checkpoints import verify_saved

_HEAD = "lm_head"
_COMPARED = ("r", "lora_alpha", "use_rslora", "use_dora")


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
    if problems:
        raise RecipeError(recipe, problems)
    try:
        return LoraConfig(task_type="CAUSAL_LM", **options)
    except (TypeError, ValueError) as error:
        raise RecipeError(recipe, [f"adapter.lora: {error}"]) from error


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def check_targets(model: nn.Module, config: LoraConfig) -> None:
    """Check that every layer name in ``target_modules`` matches something; peft only asks that one does.

    Raises:
        ModelError: a name matches no layer; names the layers there are.
    """
    if not isinstance(config.target_modules, (list, tuple, set)):
        return
    names = [name for name, _ in model.named_modules()]
    for target in sorted(config.target_modules):
        if not any(name == target or name.endswith(f".{target}") for name in names):
            layers = sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules() if _is_linear(module)})
            raise ModelError(
                f"the model has no layer {target}",
                where="adapter.lora.target_modules",
                fix=f"its linear layers are: {', '.join(layer for layer in layers if layer != _HEAD)}",
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
        ModelError: a target matches no layer; or ``init_from`` is no safetensors adapter, has another shape than
            the recipe's, or does not fit the model.
    """
    check_targets(model, config)
    set_seed(seed)
    # ZeRO-3 gathers parameters of one dtype at a time, so the adapter keeps the model's; otherwise fp32.
    autocast = not is_deepspeed_zero3_enabled()
    if init_from is None:
        try:
            with quiet_renames():
                return get_peft_model(model, config, autocast_adapter_dtype=autocast, revision=revision)
        except ValueError as error:
            raise ModelError(f"the adapter does not fit the model: {error}", where="adapter.lora") from error
    check_same_kind(init_from, config)
    with quiet_renames():
        adapted = PeftModel.from_pretrained(model, init_from, is_trainable=True, autocast_adapter_dtype=autocast)
    loaded = adapter_tensors(adapted)
    try:
        verify_saved(init_from, loaded, trained=False, same_dtype=False)
    except EnvironmentFailure as error:
        raise ModelError(f"the adapter does not fit the model: {error}", where=str(init_from)) from error
    return adapted


def check_same_kind(folder: Path, config: LoraConfig) -> None:
    """Check that a folder holds a LoRA adapter of the recipe's shape, to start from.

    Raises:
        ModelError: it does not.
    """
    found = read_adapter_config(folder)
    for name in _COMPARED:
        theirs, ours = getattr(found, name), getattr(config, name)
        if theirs != ours:
            raise ModelError(
                f"the adapter has {name}={theirs}, the recipe {ours}",
                where=str(folder),
                fix=f"set adapter.lora.{name}={theirs}",
            )
    if _target_set(found) != _target_set(config):
        raise ModelError("the adapter has other target_modules than the recipe", where=str(folder))


def _target_set(config: LoraConfig) -> frozenset[object]:
    return frozenset(_as_list(config.target_modules))


def adapter_tensors(model: PeftModel, state_dict: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The adapter's tensors by their name in its file; ``state_dict`` is the gathered one of a sharded model."""
    tensors: dict[str, Tensor] = get_peft_model_state_dict(
        model, state_dict=None if state_dict is None else dict(state_dict), save_embedding_layers=False
    )
    return tensors
