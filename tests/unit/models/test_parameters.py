from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.tiny_shapes import FAMILIES, tiny_shape
from txagent_train.config.sft import LoraSection
from txagent_train.core.errors import ModelError
from txagent_train.models.loading import load_model
from txagent_train.models.parameters import (
    Parameter,
    Sizes,
    arithmetic,
    known_shapes,
    model_config,
    on_meta,
    why_not_arithmetic,
)

EMBEDDED = "embedded:smollm2-135m-instruct"
# Public config.json files, by the names that recipes use.
SHIPPED = {
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-4B-Instruct-2507": 4_022_468_096,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"r": 4, "target_modules": "all-linear"},
    {"target_modules": r".*layers\.[02]\.(self_attn|mlp)\.(q|up)_proj"},
    {"r": 4, "target_modules": ["q_proj", "mlp.down_proj"], "rank_pattern": {r"layers\.1\.self_attn\.q_proj": 7}},
    {"target_modules": ["q_proj"], "exclude_modules": ["1.self_attn.q_proj"], "use_dora": True},
    {"target_modules": ["k_proj", "up_proj"], "layers_to_transform": [0, 2], "use_rslora": True},
    {"target_modules": "all-linear", "modules_to_save": ["model.norm", "input_layernorm"]},
    {"target_modules": ["q_proj", "gate_proj"], "modules_to_save": ["embed_tokens", "mlp"]},
]


def counted(parameters: tuple[Parameter, ...]) -> Counter[Parameter]:
    return Counter(parameters)


def trainable(parameters: tuple[Parameter, ...]) -> int:
    return sum(item.numel for item in parameters if item.trainable)


@pytest.mark.parametrize("name", SHIPPED)
def test_models_of_shipped_recipes_are_counted_as_transformers_builds_them(name: str) -> None:
    config, source = model_config(name)
    assert "known models" in source
    full = arithmetic(config, None)
    assert sum(item.numel for item in full) == trainable(full) == SHIPPED[name]
    lora = LoraSection().options()
    assert why_not_arithmetic(config, lora) is None
    assert counted(full) == counted(on_meta(config, None))
    assert counted(arithmetic(config, lora)) == counted(on_meta(config, lora))


def test_the_anchors_of_llama() -> None:
    config = known_shapes()["meta-llama/Llama-3.1-8B-Instruct"]
    assert trainable(arithmetic(config, LoraSection(r=16).options())) == 41_943_040
    one = [item for item in arithmetic(config, None) if item.layer == 7]
    assert sum(item.numel for item in one) == 218_112_000


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_are_counted_as_peft_makes_them(family: str, options: dict[str, Any]) -> None:
    lora = LoraSection(**options).options()
    config = tiny_shape(family, tied=False)
    assert why_not_arithmetic(config, lora) is None
    assert counted(arithmetic(config, lora)) == counted(on_meta(config, lora))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_whole_models_are_counted_as_transformers_builds_them(family: str, tied: bool) -> None:
    config = tiny_shape(family, tied=tied)
    assert counted(arithmetic(config, None)) == counted(on_meta(config, None))


def test_the_embedded_model() -> None:
    config, source = model_config(EMBEDDED)
    assert "GGUF" in source
    loaded = load_model(EMBEDDED)
    assert sum(item.numel for item in arithmetic(config, None)) == sum(item.numel() for item in loaded.parameters())


def test_what_arithmetic_cannot_count_is_counted_on_the_meta_device() -> None:
    config = tiny_shape("llama", tied=False)
    assert "lora_bias" in str(why_not_arithmetic(config, {"target_modules": ["q_proj"], "lora_bias": True}))
    found = on_meta(config, {"r": 2, "target_modules": ["q_proj"], "lora_bias": True})
    assert trainable(found) == 3 * (2 * 20 + 2 * 20 + 20)
    other = {"model_type": "gpt_neox", "vocab_size": 61, "hidden_size": 20, "intermediate_size": 27}
    other |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    assert "gpt_neox" in str(why_not_arithmetic(other, None))
    assert {item.part for item in on_meta(other, None)} == {"embedding", "head", "matrix", "other"}


@pytest.mark.parametrize("targets", [["nosuch_proj"], ["embed_tokens"], ".*lm_head", ["q_proj", "norm"]])
def test_targets_that_cannot_be_adapted_are_an_error(targets: Any) -> None:
    with pytest.raises(ModelError, match=r"adapter\.lora\.target_modules: matches .*\n.*q_proj"):
        arithmetic(tiny_shape("llama", tied=False), {"target_modules": targets})


def test_a_configuration_without_sizes_is_an_error() -> None:
    with pytest.raises(ModelError, match="no vocab_size, intermediate_size"):
        Sizes.of({"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2})
