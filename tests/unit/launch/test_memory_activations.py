"""The estimate of activations against what autograd really saves, on tiny models whose proportions are usual ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from txagent_train.config.sft import ALL_LINEAR
from txagent_train.launch.memory import _activations
from txagent_train.launch.states import Engine, Setup
from txagent_train.models.parameters import Sizes, arithmetic
from txagent_train.sft.adapter import add_adapter, lora_config

TOKENS = 256


def shape(family: str) -> dict[str, Any]:
    return {
        "model_type": family,
        "vocab_size": 60,
        "hidden_size": 128,
        "intermediate_size": 448,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "tie_word_embeddings": False,
    }


def saved_bytes(model: Any, *, autocast: bool) -> int:
    """Bytes of the different storages that the forward pass through the body saves, weights and their casts aside."""
    storages: dict[int, torch.UntypedStorage] = {}
    weights = {item.untyped_storage().data_ptr() for item in model.parameters()}
    casts = {item.numel() for item in model.parameters() if item.dim() > 1}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        of_weight = storage.data_ptr() in weights or (tensor.dim() == 2 and tensor.numel() in casts)
        if not of_weight:
            storages[storage.data_ptr()] = storage
        return tensor

    ids = torch.arange(TOKENS)[None] % 60
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast),
    ):
        hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    assert hidden.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(("full", "engine"), [(False, "ddp"), (True, "ddp"), (False, "zero3")])
def test_activations_are_what_autograd_saves(family: str, full: bool, engine: Engine) -> None:
    config = shape(family)
    fields = dict(config)
    model_type = fields.pop("model_type")
    torch.manual_seed(0)
    dtype = torch.float32 if full else torch.bfloat16
    model: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **fields), dtype=dtype, attn_implementation="sdpa"
    )
    lora = {"r": 4, "target_modules": list(ALL_LINEAR)}
    if not full:
        adapted = add_adapter(model, lora_config(lora), init_from=None, seed=0)
        if engine == "zero3":
            adapted = adapted.to(torch.bfloat16)
        model = adapted.get_base_model()
    setup = Setup(arithmetic(config, None if full else lora), Sizes.of(config), full=full, compute_bytes=2)
    measured = saved_bytes(model, autocast=engine != "zero3")
    estimated = _activations(setup, engine, checkpointing=False) * TOKENS
    # The estimate also has what is alive in the backward pass.
    assert measured <= estimated <= 1.35 * measured, (measured / TOKENS, estimated / TOKENS)
