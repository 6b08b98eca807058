"""Tiny models of three families with sizes that nothing divides, for tests of what is counted."""

from __future__ import annotations

import itertools
from typing import Any

from txagent_train.core.records import JsonObject

FAMILIES = ("llama", "qwen3", "qwen2")


def tiny_shape(family: str, *, tied: bool) -> JsonObject:
    """The names of config.json. Llama's has biases; Qwen2 and Qwen3 have what makes them differ from it."""
    shape = {
        "model_type": family,
        "vocab_size": 61,
        "hidden_size": 20,
        "intermediate_size": 27,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "tie_word_embeddings": tied,
    }
    if family == "qwen3":
        shape["head_dim"] = 14
    return shape | ({"attention_bias": True, "mlp_bias": True} if family == "llama" else {})


def tiny_cases() -> list[tuple[str, bool, str]]:
    """(family, tied, method)."""
    return list(itertools.product(FAMILIES, (False, True), ("lora", "full")))


LORA: dict[str, Any] = {"r": 3, "lora_alpha": 3, "target_modules": ["q_proj", "v_proj", "down_proj"]}
