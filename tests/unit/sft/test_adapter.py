from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.tiny_training import tiny_model
from txagent_train.core.errors import ModelError, RecipeError
from txagent_train.models.adapters import adapter_tensors
from txagent_train.sft.adapter import add_adapter, lora_config

OPTIONS = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]}


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    with pytest.raises(RecipeError, match=r"adapter\.lora\.use_dorra: .* did you mean use_dora\?"):
        lora_config(OPTIONS | {"use_dorra": True})


def test_every_option_of_peft_passes_through() -> None:
    config = lora_config(OPTIONS | {"use_rslora": True, "rank_pattern": {"q_proj": 4}, "init_lora_weights": "gaussian"})
    assert config.use_rslora and config.rank_pattern == {"q_proj": 4} and config.init_lora_weights == "gaussian"


def test_a_value_that_peft_refuses_is_an_error_of_the_recipe() -> None:
    with pytest.raises(RecipeError, match=r"adapter\.lora"):
        lora_config(OPTIONS | {"layers_pattern": "layers"})


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"rank_pattern": 4}, "rank_pattern: must be a mapping"),
        ({"rank_pattern": {"q_proj": "4"}}, "rank_pattern: must be a mapping"),
        ({"target_modules": "(q_proj"}, "not a regular expression"),
        ({"layer_replication": [[0, 1]]}, "layer_replication: not supported"),
    ],
)
def test_values_that_peft_would_stumble_over(option: dict[str, Any], match: str) -> None:
    with pytest.raises(RecipeError, match=match):
        lora_config(OPTIONS | option)


@pytest.mark.parametrize("targets", [".*(q_proj|lm_head)", ".*(q_proj|embed_tokens)", ["q_proj", "embed_tokens"]])
@pytest.mark.parametrize("tied", [False, True])
def test_head_and_embeddings_cannot_be_adapted(targets: str | list[str], tied: bool) -> None:
    config = lora_config(OPTIONS | {"target_modules": targets})
    with pytest.raises(ModelError, match="cannot be adapted"):
        add_adapter(tiny_model(tied=tied), config, init_from=None, seed=0)


def test_a_tied_embedding_cannot_be_saved_beside_the_adapter() -> None:
    config = lora_config(OPTIONS | {"modules_to_save": ["embed_tokens"]})
    with pytest.raises(ModelError, match="tied to the head"):
        add_adapter(tiny_model(tied=True), config, init_from=None, seed=0)


@pytest.mark.parametrize("key", ["target_modules", "modules_to_save"])
def test_the_head_cannot_be_adapted(key: str) -> None:
    with pytest.raises(RecipeError, match="lm_head"):
        lora_config(OPTIONS | {key: ["q_proj", "lm_head"]})


def test_each_target_must_match_a_layer() -> None:
    config = lora_config(OPTIONS | {"target_modules": ["q_proj", "w_pack"]})
    with pytest.raises(ModelError, match=r"no layer w_pack[\s\S]*down_proj, gate_proj, k_proj"):
        add_adapter(tiny_model(), config, init_from=None, seed=0)


def test_only_the_adapter_trains_and_the_seed_decides_it() -> None:
    def build(seed: int) -> dict[str, torch.Tensor]:
        model = add_adapter(tiny_model(torch.float32), lora_config(OPTIONS), init_from=None, seed=seed)
        assert all(("lora_" in name) == item.requires_grad for name, item in model.named_parameters())
        return adapter_tensors(model)

    first, again, other = build(0), build(0), build(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_starting_from_a_saved_adapter(tmp_path: Path) -> None:
    model = add_adapter(tiny_model(torch.float32), lora_config(OPTIONS), init_from=None, seed=3)
    for name, item in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(item)
    model.save_pretrained(tmp_path)
    started = add_adapter(tiny_model(torch.float32), lora_config(OPTIONS), init_from=tmp_path, seed=0)
    saved, loaded = adapter_tensors(model), adapter_tensors(started)
    assert saved.keys() == loaded.keys() and all(torch.equal(saved[name], loaded[name]) for name in saved)
    assert all(item.requires_grad for name, item in started.named_parameters() if "lora_" in name)

    with pytest.raises(ModelError, match=r"r=2, the recipe 8[\s\S]*adapter\.lora\.r=2"):
        add_adapter(tiny_model(torch.float32), lora_config(OPTIONS | {"r": 8}), init_from=tmp_path, seed=0)
    with pytest.raises(ModelError, match="target_modules"):
        fewer = lora_config(OPTIONS | {"target_modules": ["q_proj"]})
        add_adapter(tiny_model(torch.float32), fewer, init_from=tmp_path, seed=0)
    other = {"lora_dropout": 0.5, "layers_to_transform": [0], "rank_pattern": {"q_proj": 1}, "use_dora": True}
    with pytest.raises(ModelError) as caught:
        add_adapter(tiny_model(torch.float32), lora_config(OPTIONS | other), init_from=tmp_path, seed=0)
    assert all(f"\n    {name}=" in str(caught.value) for name in other)
    with pytest.raises(ModelError, match="not an adapter"):
        add_adapter(tiny_model(torch.float32), lora_config(OPTIONS), init_from=tmp_path / "absent", seed=0)
