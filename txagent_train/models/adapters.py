"""Opening LoRA adapters that were saved to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from txagent_train.core.errors import EnvironmentFailure, ModelError
from txagent_train.models.identity import check_base
from txagent_train.models.loading import Attention, Dtype, Quantization, load_model, reading_model
from txagent_train.models.quiet import quiet_renames

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig, PeftModel
    from transformers import PreTrainedModel

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter rather than a whole model."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter_config(folder: Path) -> LoraConfig:
    """The configuration of a LoRA adapter in safetensors.

    Raises:
        ModelError: the folder does not hold one.
    """
    from peft import LoraConfig, PeftConfig

    if not is_adapter(folder) or not (folder / ADAPTER_WEIGHTS).is_file():
        raise ModelError(f"not an adapter: it has no {ADAPTER_CONFIG} with {ADAPTER_WEIGHTS}", where=str(folder))
    try:
        found = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # whatever a broken file makes of the library
        raise ModelError(f"{ADAPTER_CONFIG} cannot be read: {error}", where=str(folder)) from error
    if not isinstance(found, LoraConfig):
        raise ModelError(f"the adapter is of the type {found.peft_type}, not LoRA", where=str(folder))
    return found


def load_with_adapter(
    folder: Path,
    *,
    dtype: Dtype | torch.dtype = "auto",
    attn_implementation: Attention = "auto",
    quantization: Quantization = "none",
    device: torch.device | str | None = None,
) -> PeftModel:
    """Load an adapter on the base model that it names, ready for inference.

    Raises:
        ModelError: the folder is no adapter, its base model cannot be loaded, or is not the one it was trained on.
    """
    config = read_adapter_config(folder)
    if not config.base_model_name_or_path:
        raise ModelError("the adapter does not name its base model", where=str(folder))
    check_base(folder, config.base_model_name_or_path, config.revision)
    base = load_model(
        config.base_model_name_or_path,
        config.revision,
        dtype=dtype,
        attn_implementation=attn_implementation,
        quantization=quantization,
        device=device,
    )
    return attach_adapter(base, folder).eval()


def attach_adapter(base: PreTrainedModel, folder: Path, *, trainable: bool = False, autocast: bool = True) -> PeftModel:
    """Put a saved adapter on its base model, and compare every tensor with the file.

    Args:
        autocast: keep the adapter in fp32 where its file is in 16 bits.

    Raises:
        ModelError: it does not fit the model, or its file is torn.
    """
    from peft import PeftModel

    from txagent_train.models.verify import verify_saved

    with reading_model(str(folder), what="the adapter does not fit the model"), quiet_renames():
        model: PeftModel = PeftModel.from_pretrained(
            base, folder, is_trainable=trainable, autocast_adapter_dtype=autocast
        )
    try:
        verify_saved(folder, adapter_tensors(model), trained=False, same_dtype=False)
    except EnvironmentFailure as error:
        raise ModelError(f"the adapter does not fit the model: {error}", where=str(folder)) from error
    return model


def adapter_tensors(model: PeftModel, state_dict: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
    """The adapter's tensors by their name in its file; ``state_dict`` is the gathered one of a sharded model."""
    from peft import get_peft_model_state_dict

    tensors: dict[str, torch.Tensor] = get_peft_model_state_dict(
        model, state_dict=None if state_dict is None else dict(state_dict), save_embedding_layers=False
    )
    return tensors


def saved_tensors(
    model: PreTrainedModel | PeftModel, state_dict: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """What saving a model writes, by name in its file; ``state_dict`` is the gathered one of a sharded model."""
    from peft import PeftModel

    from txagent_train.models.verify import without_tied

    if isinstance(model, PeftModel):
        return adapter_tensors(model, state_dict)
    return without_tied(model, model.state_dict() if state_dict is None else state_dict)
