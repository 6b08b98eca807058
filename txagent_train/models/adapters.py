"""Opening LoRA adapters that were saved to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from txagent_train.core.errors import ModelError
from txagent_train.models.loading import Attention, Dtype, Quantization, load_model
from txagent_train.models.quiet import quiet_renames

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig, PeftModel

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
    except (TypeError, ValueError) as error:
        raise ModelError(f"{ADAPTER_CONFIG} cannot be read: {error}", where=str(folder)) from error
    if not isinstance(found, LoraConfig):
        raise ModelError(f"the adapter is of the type {found.peft_type}, not LoRA", where=str(folder))
    return found


def load_with_adapter(
    folder: Path,
    *,
    dtype: Dtype | torch.dtype = "auto",
    attn_implementation: Attention = "sdpa",
    quantization: Quantization = "none",
    device: torch.device | str | None = None,
) -> PeftModel:
    """Load an adapter on the base model that it names, ready for inference.

    Raises:
        ModelError: the folder is no adapter, or its base model cannot be loaded.
    """
    from peft import PeftModel

    config = read_adapter_config(folder)
    if not config.base_model_name_or_path:
        raise ModelError("the adapter does not name its base model", where=str(folder))
    base = load_model(
        config.base_model_name_or_path,
        config.revision,
        dtype=dtype,
        attn_implementation=attn_implementation,
        quantization=quantization,
        device=device,
    )
    with quiet_renames():
        model: PeftModel = PeftModel.from_pretrained(base, folder)
    return model.eval()
