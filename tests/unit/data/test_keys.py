from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.data.keys import folded, subject_keys, words

UNSEEN = "\u00ad\u200b\u200d\u200e\u2060\ufeff\ufe0f\u034f\x00"


@pytest.mark.parametrize(
    "text",
    [
        "what's the dose of co-trimoxazole?",
        "What\u2019s the  dose of co\u2011trimoxazole?",
        "\ufeffWhat\u02bcs the\ndose of co\u2013tri\u00admoxazole?",
        "\uff37\uff48\uff41\uff54\uff07s the dose\u00a0of co\u2010trimoxazole\uff1f",
    ],
)
def test_what_only_spelling_tells_apart_is_the_same(text: str) -> None:
    assert folded(text) == "what's the dose of co-trimoxazole?"


def test_what_is_another_text_stays_so() -> None:
    texts = ["dose of 5 mg", "dose of 15 mg", "dose of 5 g", "dose of 5mg", "does of 5 mg", "", "dose of \u03b2 5 mg"]
    assert len({folded(text) for text in texts}) == len(texts)


@given(st.text())
def test_folding_again_changes_nothing(text: str) -> None:
    assert folded(folded(text)) == folded(text)


@given(st.text(max_size=20), st.data())
def test_what_has_no_width_changes_nothing(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text)))
    mixed = text[:place] + data.draw(st.sampled_from(UNSEEN)) + text[place:]
    assert folded(mixed) == folded(text) and words(mixed) == words(text)


def test_entities_go_by_their_words_and_ids_are_folded() -> None:
    first = subject_keys("", "Q\u201012", ("co trimoxazole", "", "\u200b"))
    assert first == subject_keys("\u2060", " q-12", ("Co-trimoxazole",)) and len(first) == 2
