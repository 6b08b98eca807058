"""Tokenizers for tests: the real one of SmolLM2 from its package, and a small one of Llama-3's kind.

The latter has Llama-3.1's splitting pattern and control tokens over a vocabulary learnt from a few sentences: the
cuts and merges at segment borders are of the same kind as with the real one.
"""

from __future__ import annotations

from functools import lru_cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from txagent_train.models.loading import load_tokenizer

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


@lru_cache(maxsize=1)
def small_llama3() -> PreTrainedTokenizerBase:
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
    named = ["<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|start_header_id|>"]
    named += ["<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    reserved = [f"<|reserved_special_token_{number}|>" for number in range(20)]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in [*named, *reserved]])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>", clean_up_tokenization_spaces=False
    )


TOKENIZERS = {"chatml": smollm2, "llama3": small_llama3}
