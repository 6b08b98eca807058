"""The tokenizer without torch gives what the one of transformers gives."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.support.tokenizers import REAL_TOKENIZERS, real_tokenizer_folder, small_llama3, small_qwen3, smollm2
from tests.support.traces import odd_trace, texts
from txagent_train.core.errors import ModelError
from txagent_train.data.decompose import decompose
from txagent_train.models.fast_tokenizer import FastTokenizer, load_fast_tokenizer
from txagent_train.models.gguf_vocabulary import gguf_tokenizer
from txagent_train.rendering.controls import tokenizer_controls
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import wire_format_for

SMOLLM2 = "embedded:smollm2-135m-instruct"
PIECES = ["<|", "|>", "im_end", "\r\n", "  ", "é", "e\u0301", "'S", "1234"]
ODD = st.one_of(texts, st.text(max_size=40), st.lists(st.sampled_from(PIECES)).map("".join))


@lru_cache(maxsize=4)
def _pair(name: str) -> tuple[FastTokenizer, PreTrainedTokenizerBase]:
    if name == "smollm2":
        return load_fast_tokenizer(SMOLLM2), smollm2()
    folder = str(real_tokenizer_folder(name))
    return load_fast_tokenizer(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", ["smollm2", *REAL_TOKENIZERS])
def test_ids_and_text_are_those_of_transformers(name: str) -> None:
    fast, slow = _pair(name)

    @settings(max_examples=200, deadline=None)
    @given(ODD)
    def check(text: str) -> None:
        text = text.encode("utf-8", "replace").decode()
        ids = fast.encode(text, add_special_tokens=False)
        assert ids == slow.encode(text, add_special_tokens=False)
        assert fast.decode(ids) == slow.decode(ids)

    check()


@pytest.mark.parametrize("name", ["smollm2", *REAL_TOKENIZERS])
def test_a_renderer_makes_the_same_of_both(name: str) -> None:
    renderers = []
    for tokenizer in _pair(name):
        assert tokenizer_controls(tokenizer) == tokenizer_controls(_pair(name)[1])
        renderers.append(Renderer(tokenizer, wire_format_for(tokenizer, syntax="hermes", finish="text")))
    fast, slow = renderers
    assert fast.tokenizer.get_vocab() == slow.tokenizer.get_vocab()
    assert (fast.wire, fast.stop_token_id, fast.pad_token_id) == (slow.wire, slow.stop_token_id, slow.pad_token_id)
    assert fast.chat_template == slow.chat_template == fast.tokenizer.chat_template
    examples = list(decompose(odd_trace()))
    assert [fast.render(example) for example in examples] == [slow.render(example) for example in examples]


def test_the_embedded_tokenizer_is_the_same_to_the_byte() -> None:
    fast, slow = _pair("smollm2")
    assert fast.backend_tokenizer.to_str() == slow.backend_tokenizer.to_str()
    assert (fast.eos_token, fast.pad_token, fast.name_or_path) == (slow.eos_token, slow.pad_token, slow.name_or_path)


@pytest.mark.parametrize("make", [small_llama3, small_qwen3])
def test_a_saved_tokenizer_is_read_from_its_folder(make: object, tmp_path: Path) -> None:
    slow = make()  # type: ignore[operator]
    slow.save_pretrained(tmp_path)
    fast = load_fast_tokenizer(str(tmp_path))
    assert fast.get_vocab() == slow.get_vocab() and fast.eos_token == slow.eos_token
    assert tokenizer_controls(fast) == tokenizer_controls(slow)


def test_tokens_that_only_the_configuration_adds(tmp_path: Path) -> None:
    small_qwen3().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    number = len(small_qwen3().get_vocab())
    config["added_tokens_decoder"] = {str(number): {"content": "<new>", "special": False, "normalized": False}}
    config["additional_special_tokens"] = ["<special>"]
    path.write_text(json.dumps(config))
    fast, slow = load_fast_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    ids = fast.encode("a<new>b<special>", add_special_tokens=False)
    assert ids == slow.encode("a<new>b<special>", add_special_tokens=False) and number in ids
    config["added_tokens_decoder"] = {str(number + 7): {"content": "<new>"}}
    path.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="gives the token '<new>' the id"):
        load_fast_tokenizer(str(tmp_path))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        load_fast_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_fast_tokenizer(str(tmp_path))
    with pytest.raises(ModelError, match="no such model folder"):
        load_fast_tokenizer("/no/such/folder")
    with pytest.raises(ModelError, match="hub cannot be reached"):
        load_fast_tokenizer("nobody/no-model")
    torn = tmp_path / "torn.gguf"
    for content in (
        b"",
        b"GGUF",
        b"GGUF\x03\x00\x00\x00" + b"\x05" * 40,
        b"no gguf at all, but long enough for a header",
    ):
        torn.write_bytes(content)
        with pytest.raises(ModelError, match=r"cannot be read|no GGUF"):
            gguf_tokenizer(torn)


def test_a_renderer_with_it_can_be_sent_to_another_process() -> None:
    tokenizer = load_fast_tokenizer(SMOLLM2)
    renderer = Renderer(tokenizer, wire_format_for(tokenizer, syntax="txagent", finish="call"))
    example = next(decompose(odd_trace()))
    assert pickle.loads(pickle.dumps(renderer)).render(example) == renderer.render(example)


def test_no_torch_and_no_transformers_is_imported() -> None:
    code = (
        "import sys; from txagent_train.models.fast_tokenizer import load_fast_tokenizer; "
        f"load_fast_tokenizer('{SMOLLM2}'); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
