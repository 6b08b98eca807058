from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.tiny_training import save_tiny_model, tiny_model
from txagent_train.core.errors import ModelError
from txagent_train.models.adapters import load_with_adapter, read_adapter_config
from txagent_train.models.loading import check_loadable, load_model, load_tokenizer, resolve_dtype
from txagent_train.packing.attention import TRIE
from txagent_train.sft.adapter import add_adapter, lora_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model(torch.float32).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_dtype_is_as_asked(folder: Path) -> None:
    assert load_model(str(folder), dtype="bfloat16").dtype is torch.bfloat16
    assert resolve_dtype("auto") is (torch.bfloat16 if torch.cuda.is_available() else torch.float32)


def test_the_attention_kernel_is_as_asked(folder: Path) -> None:
    assert load_model(str(folder)).config._attn_implementation == "sdpa"
    assert load_model(str(folder), attn_implementation=TRIE).config._attn_implementation == TRIE
    assert load_model(str(folder), attn_implementation="eager").config._attn_implementation == "eager"


def test_a_folder_without_a_model_is_told_from_an_adapter(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelError, match="no such model folder"):
        load_model(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_tokenizer(str(tmp_path / "empty"))
    adapted = add_adapter(
        load_model(str(folder)), lora_config({"r": 2, "target_modules": ["q_proj"]}), init_from=None, seed=0
    )
    adapted.save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelError, match="an adapter, not a model"):
        load_model(str(tmp_path / "adapter"))
    assert read_adapter_config(tmp_path / "adapter").r == 2
    assert load_with_adapter(tmp_path / "adapter").config.hidden_size == 16


def test_a_model_that_is_not_in_the_cache_is_a_clear_error_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"not in the Hugging Face cache[\s\S]*HF_HUB_OFFLINE"):
        load_tokenizer("nobody/no-such-model")
    with pytest.raises(ModelError, match="not in the Hugging Face cache"):
        load_model("nobody/no-such-model", "0123")


def test_pickled_weights_are_not_loaded(folder: Path) -> None:
    model = load_model(str(folder))
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(folder))


@pytest.mark.parametrize("fault", ["missing", "unexpected", "shape"])
def test_weights_that_are_not_the_models_are_refused(folder: Path, fault: str) -> None:
    path, name = folder / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    tensors = load_file(path)
    if fault == "missing":
        del tensors[name]
    elif fault == "unexpected":
        tensors["model.layers.9.mlp.up_proj.weight"] = tensors[name].clone()
    else:
        tensors[name] = torch.zeros(3, 3)
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(ModelError) as caught:
        load_model(str(folder))
    assert str(folder) in str(caught.value)
    assert fault == "shape" or "up_proj" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"\x08\x00"),
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "llama", "hidden_size": "wide"}'),
    ],
)
def test_broken_files_are_errors_that_name_the_folder(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=str(folder)):
        load_model(str(folder))


def test_a_broken_tokenizer_is_an_error_that_names_the_folder(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": 3}')
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(ModelError, match=str(folder)):
        load_tokenizer(str(folder))


@pytest.mark.parametrize("fault", ["other base", "torn", "renamed"])
def test_an_adapter_that_does_not_fit_is_refused(folder: Path, tmp_path: Path, fault: str) -> None:
    adapter = tmp_path / "adapter"
    options = lora_config({"r": 2, "target_modules": ["q_proj"]})
    add_adapter(load_model(str(folder)), options, init_from=None, seed=0).save_pretrained(adapter)
    weights = adapter / "adapter_model.safetensors"
    if fault == "other base":
        save_tiny_model(folder)
    elif fault == "torn":
        weights.write_bytes(weights.read_bytes()[:-8])
    else:
        save_file({name.replace("layers.0", "layers.7"): value for name, value in load_file(weights).items()}, weights)
    with pytest.raises(ModelError, match="does not fit the model"):
        load_with_adapter(adapter)


def test_code_from_a_repository_is_not_executed(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "config.json", folder / "old.json")
    config = (folder / "config.json").read_text()
    config = config.replace('"model_type": "llama"', '"model_type": "odd", "auto_map": {"AutoConfig": "code.Config"}')
    (folder / "config.json").write_text(config)
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\n")
    with pytest.raises(ModelError):
        load_model(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a machine without a GPU says")
def test_what_needs_a_gpu_says_so(folder: Path) -> None:
    with pytest.raises(ModelError, match="nf4 needs a GPU"):
        check_loadable(str(folder), attn_implementation="sdpa", quantization="nf4")
    with pytest.raises(ModelError, match="flash_attention_2 needs a GPU"):
        check_loadable(str(folder), attn_implementation="flash_attention_2", quantization="none")
