from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache

import pytest
from hypothesis import given, settings

from tests.support.tokenizers import REAL_TOKENIZERS, real_tokenizer_folder, small_llama3, small_qwen3, smollm2
from tests.support.traces import odd_trace, traces
from txagent_train.core.records import RenderedExample, Trace
from txagent_train.data.decompose import decompose
from txagent_train.models.fast_tokenizer import load_fast_tokenizer
from txagent_train.rendering.preview import Preview, lines, shared_messages, visible
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.tokenizer import TextTokenizer
from txagent_train.rendering.wire import WireFormat

SMALL: dict[str, Callable[[], TextTokenizer]] = {"smollm2": smollm2, "llama3": small_llama3, "qwen3-small": small_qwen3}


@lru_cache(maxsize=5)
def _tokenizer(name: str) -> TextTokenizer:
    return SMALL[name]() if name in SMALL else load_fast_tokenizer(str(real_tokenizer_folder(name)))


@lru_cache(maxsize=5)
def _renderer(name: str) -> tuple[Renderer, Preview]:
    wire = WireFormat("llama3" if "llama3" in name else "chatml", "txagent", "text")
    return Renderer(_tokenizer(name), wire), Preview(_tokenizer(name))


def _rendered(trace: Trace, name: str = "smollm2") -> tuple[Preview, list[RenderedExample]]:
    renderer, preview = _renderer(name)
    return preview, [renderer.render(example) for example in decompose(trace)]


@pytest.mark.parametrize("name", [*SMALL, *REAL_TOKENIZERS])
@settings(max_examples=30, deadline=None)
@given(trace=traces())
def test_every_token_is_shown_once_and_the_text_is_that_of_the_tokenizer(name: str, trace: Trace) -> None:
    preview, examples = _rendered(trace, name)
    for example in examples:
        for pieces in (preview.tokens(example), preview.runs(example)):
            assert tuple(number for piece in pieces for number in piece.ids) == example.input_ids
            assert [piece.trained for piece in pieces for _ in piece.ids] == list(example.loss_mask)
            whole = _tokenizer(name).decode(list(example.input_ids))
            assert "".join(piece.text for piece in pieces) == whole


def test_a_character_of_several_tokens_is_one_piece() -> None:
    tokenizer = smollm2()
    ids = tokenizer.encode("a漢👩", add_special_tokens=False)
    pieces = Preview(tokenizer).tokens(RenderedExample("x", 0, tuple(ids), (False,) * len(ids)))
    assert [piece.text for piece in pieces] == ["a", "漢", "👩"] and len(ids) > 3


def test_lines_are_trained_on_as_a_whole_and_begin_anew_where_that_changes() -> None:
    preview, examples = _rendered(odd_trace())
    shown = list(lines(preview.runs(examples[0])))
    assert all(len({piece.trained for piece in line.pieces}) == 1 for line in shown)
    assert "".join("" if line.goes_on else "\n" for line in shown).count("\n") >= 3
    text = ["".join(piece.text for piece in line.pieces) for line in shown]
    assert text[-1].endswith("<|im_end|>") and shown[-1].trained and not shown[0].trained
    joined = "".join(("" if line.goes_on else "\n") + part for line, part in zip(shown, text, strict=True))
    assert joined.strip("\n") == "".join(piece.text for piece in preview.runs(examples[0])).strip("\n")


def test_what_samples_share_is_whole_messages() -> None:
    _, examples = _rendered(odd_trace())
    first, second = examples[1:]  # the tools are the same by now
    opening = smollm2().get_vocab()["<|im_start|>"]
    shared = shared_messages(second, first, opening)
    assert 0 < shared < first.loss_mask.index(True) and first.input_ids[:shared] == second.input_ids[:shared]
    assert second.input_ids[shared] == opening and opening in second.input_ids[shared + 1 :]
    text = smollm2().decode(list(second.input_ids[shared:]))
    assert text.startswith("<|im_start|>assistant\nThen the pair.")


def test_nothing_that_moves_the_cursor_is_shown_as_it_is() -> None:
    shown = visible("a\x1b[2J\rb\u202ec\x9b\u2028\n\t👩‍⚕️")
    assert shown == "a␛[2J␍b⟨U+202E⟩c⟨U+009B⟩⟨U+2028⟩\n\t👩‍⚕️"
    assert all(unicodedata.category(letter) != "Cc" for letter in shown if letter not in "\n\t")
