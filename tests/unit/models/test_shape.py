from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.tiny_training import save_tiny_model
from txagent_train.core.errors import ModelError
from txagent_train.models.loading import load_model
from txagent_train.models.shape import read_shape
from txagent_train.packing.bins import FlopCost

EMBEDDED = "embedded:smollm2-135m-instruct"


@pytest.mark.parametrize("name", [EMBEDDED, "local"])
def test_it_costs_what_the_loaded_model_costs(tmp_path: Path, name: str) -> None:
    if name == "local":
        name = str(save_tiny_model(tmp_path / "model"))
    model = load_model(name)
    assert isinstance(model, LlamaForCausalLM) and isinstance(model.config, LlamaConfig)
    cost = FlopCost.of(read_shape(name))
    assert cost == FlopCost.of(model.config.to_dict())
    products = [weight for key, weight in model.model.layers[0].named_parameters() if key.endswith("proj.weight")]
    assert cost.per_token == 2 * sum(weight.numel() for weight in products)


def test_a_model_without_a_configuration_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json cannot be read: .*No such file"):
        read_shape(str(tmp_path))
    (tmp_path / "config.json").write_text('{"text_config": {"hidden_size": 8}}')
    assert read_shape(str(tmp_path)) == {"hidden_size": 8}
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        read_shape(str(tmp_path))
