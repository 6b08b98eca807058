"""Merging an adapter into its base model, with proof that the merged model answers as the adapted one did."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from txagent_train.core.errors import EnvironmentFailure, RunDirError
from txagent_train.core.records import JsonObject
from txagent_train.models.adapters import load_with_adapter, read_adapter_config
from txagent_train.models.identity import BASE_FILE
from txagent_train.models.loading import Dtype
from txagent_train.models.verify import verify_saved, without_tied
from txagent_train.sft.checkpoints import aside_path, publish

_PROBE_TOKENS = 32
# Largest difference of logits, relative to the largest logit: rounding of the merged weights to the dtype.
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2, torch.float64: 1e-8}
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", BASE_FILE, "README.md")


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What was merged, and how far the logits of the probe moved (relative to the largest)."""

    adapter: str
    base: str
    out: str
    dtype: str
    logit_difference: float
    tolerance: float

    def to_json(self) -> JsonObject:
        return asdict(self)


def merge(adapter_dir: Path, out: Path, *, dtype: Dtype = "auto") -> MergeReport:
    """Write the adapter's base model with the adapter merged in, and the tokenizer, template and generation config.

    Args:
        adapter_dir: the final model of a LoRA run.
        out: a folder that is empty or not there; it appears whole or not at all.
        dtype: of the merged weights; auto is bfloat16 on a GPU and float32 on a CPU.

    Raises:
        ModelError: ``adapter_dir`` holds no adapter, its base cannot be loaded, or has other weights than it was
            trained on.
        RunDirError: ``out`` is not empty.
        EnvironmentFailure: the merged model answers differently, or was not saved as it is.
    """
    config = read_adapter_config(adapter_dir)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirError("the folder is not empty", where=str(out), fix="give another --out")
    device = torch.device("cuda") if torch.cuda.is_available() else None
    adapted = load_with_adapter(adapter_dir, dtype=dtype, device=device)
    merged, difference, tolerance = merge_checked(adapted)
    aside = aside_path(out)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        merged.save_pretrained(aside)
        # After the model, whose own generation config knows less: the adapter's has the stop token.
        for path in sorted(adapter_dir.iterdir()):
            if path.is_file() and path.name not in _ADAPTER_FILES:
                shutil.copy2(path, aside / path.name)
        verify_saved(aside, without_tied(merged, merged.state_dict()), trained=False)
        publish(aside, out)
    except OSError as error:
        raise EnvironmentFailure(f"{out} could not be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return MergeReport(
        adapter=str(adapter_dir),
        base=str(config.base_model_name_or_path),
        out=str(out),
        dtype=str(merged.dtype).removeprefix("torch."),
        logit_difference=difference,
        tolerance=tolerance,
    )


def merge_checked(adapted: PeftModel) -> tuple[PreTrainedModel, float, float]:
    """Merge in memory; returns the merged model, the logits' relative difference on a probe, and its limit.

    Raises:
        EnvironmentFailure: the difference is over the limit for the model's dtype.
    """
    vocabulary = adapted.get_base_model().get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    probe = torch.randint(vocabulary, (1, _PROBE_TOKENS), generator=generator).to(adapted.device)
    before = _logits(adapted, probe)
    merged: PreTrainedModel = adapted.merge_and_unload(safe_merge=True)
    after = _logits(merged, probe)
    difference = float((after - before).abs().max() / before.abs().max())
    tolerance = _TOLERANCE[merged.dtype]
    if not difference <= tolerance:
        raise EnvironmentFailure(
            f"the merged model answers differently: logits differ by {difference:.2g} of the largest"
        )
    return merged, difference, tolerance


def _logits(model: nn.Module, probe: Tensor) -> Tensor:
    with torch.no_grad():
        return model(input_ids=probe, attention_mask=torch.ones_like(probe)).logits.double()
