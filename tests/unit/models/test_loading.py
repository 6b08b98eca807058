from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.support.tiny_training import tiny_model
from txagent_train.core.errors import ModelError
from txagent_train.models.adapters import load_with_adapter, read_adapter_config
from txagent_train.models.loading import check_loadable, load_model, load_tokenizer, resolve_dtype
from txagent_train.sft.adapter import add_adapter, lora_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model(torch.float32).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_dtype_is_as_asked(folder: Path) -> None:
    assert load_model(str(folder), dtype="bfloat16").dtype is torch.bfloat16
    assert resolve_dtype("auto") is (torch.bfloat16 if torch.cuda.is_available() else torch.float32)


def test_the_attention_kernel_is_as_asked(folder: Path) -> None:
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
