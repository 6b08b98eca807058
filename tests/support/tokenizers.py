"""Tokenizers for tests: the real one of SmolLM2 from its package, and small ones of the kinds of Llama-3 and Qwen3.

The small ones have Llama-3.1's splitting pattern (Qwen's differs in digits) and the real control tokens, over a
vocabulary learnt from a few sentences: cuts and merges at segment borders are of the same kind as with the real ones.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from txagent_train.models.loading import load_tokenizer
from txagent_train.rendering.wire import FrameName

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LEARNT_FROM = [
    'The dose of {"name": "get_dose", "arguments": {"drug_name": "warfarin", "limit": 5}} is [TOOL_CALLS][{"name"',
    "</tool_call>\n<tool_call>\n{}}\n\n<tool_response>\n. [FinalAnswer] The answer is that, of course.\n\n",
]


@lru_cache(maxsize=1)
def smollm2() -> PreTrainedTokenizerBase:
    return load_tokenizer("embedded:smollm2-135m-instruct")


def _small(special: list[str], merely_added: list[str], **tokens: str) -> PreTrainedTokenizerBase:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(_LEARNT_FROM * 20, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in merely_added])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **tokens)


@lru_cache(maxsize=1)
def small_llama3() -> PreTrainedTokenizerBase:
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|start_header_id|>"]
    named += ["<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    reserved = [f"<|reserved_special_token_{number}|>" for number in range(20)]
    return _small([*named, *reserved], [], bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")


@lru_cache(maxsize=1)
def small_qwen3() -> PreTrainedTokenizerBase:
    """The words of the hermes syntax are tokens here, but not special ones, as in Qwen3."""
    words = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
    return _small(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], words, eos_token="<|im_end|>")


REAL_TOKENIZERS = ("llama3_1", "qwen3")
"""Folders of tokenizers that may not come with the project: ``make tokenizers`` fetches them."""
_FETCHED = Path(os.environ.get("TXAGENT_TRAIN_TOKENIZERS", Path(__file__).parents[2] / ".tokenizers"))


def real_tokenizer_folder(name: str) -> Path:
    """The folder of a real tokenizer; skips the test where it is not on this machine."""
    folder = _FETCHED / name
    if not (folder / "tokenizer.json").is_file():
        pytest.skip(f"the tokenizer of {name} is not in {_FETCHED}: make tokenizers")
    return folder


@lru_cache(maxsize=2)
def _real(name: str) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(real_tokenizer_folder(name))
    return tokenizer


TOKENIZERS = {
    "smollm2": smollm2,
    "llama3": small_llama3,
    "qwen3": small_qwen3,
    "real-llama3.1": lambda: _real("llama3_1"),
    "real-qwen3": lambda: _real("qwen3"),
}
FRAMES: dict[str, FrameName] = {
    "smollm2": "chatml",
    "llama3": "llama3",
    "qwen3": "chatml",
    "real-llama3.1": "llama3",
    "real-qwen3": "chatml",
}
