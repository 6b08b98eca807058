from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.toolsmith.words import (
    capitalised,
    content_words,
    identifier,
    identifier_words,
    one_line,
    plural,
    sentences,
    stem,
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get_drugNames_by_HPO_ID", ("get", "drug", "Names", "by", "HPO", "ID")),
        ("get_drug_by_ensemblID", ("get", "drug", "by", "ensembl", "ID")),
        ("goIds", ("go", "Ids")),
        ("get_ChEMBL_molecules", ("get", "ChEMBL", "molecules")),
        ("PubMed_search-articles.v2", ("PubMed", "search", "articles", "v2")),
        ("HPOTerms", ("HPO", "Terms")),
        ("esearch", ("esearch",)),
        ("pref_name__contains", ("pref", "name", "contains")),
        ("cBioPortal_get_types", ("cBio", "Portal", "get", "types")),
    ],
)
def test_an_identifier_is_taken_apart(name: str, words: tuple[str, ...]) -> None:
    assert identifier_words(name) == words


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_words_make_a_valid_identifier(words: list[str]) -> None:
    name = identifier(words)
    assert name.isascii() and name.isidentifier() and "__" not in name


def test_stems_join_singular_and_plural() -> None:
    pairs = [("studies", "study"), ("indexes", "index"), ("drugs", "drug"), ("diagnosis", "diagnosis"), ("gas", "gas")]
    assert all(stem(word) == expected for word, expected in pairs)
    assert [plural(word) for word in ("study", "box", "drug", "way", "data")] == [
        "studies",
        "boxes",
        "drugs",
        "ways",
        "data",
    ]


def test_content_words_are_what_a_text_is_about() -> None:
    assert content_words("Get the dose forms of drugName") == {"get", "dose", "form", "drug", "name"}


def test_sentences_end_at_a_stop_and_not_at_an_abbreviation() -> None:
    assert sentences("Finds genes, e.g. BRCA1. Returns (all) IDs. Why? So.") == [
        "Finds genes, e.g. BRCA1.", "Returns (all) IDs.", "Why?", "So.",
    ]  # fmt: skip
    assert sentences("One.\n- Two. Three.") == ["One.\n- Two. Three."]


def test_an_identifier_keeps_its_capitals() -> None:
    assert [capitalised(text) for text in ("the drug", "efoId of it", "drug_name first", "")] == [
        "The drug", "efoId of it", "drug_name first", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Retrieve   by name", "Retrieve by name"),
        (" Get\t by\u00a0\u2028 z ", "Get by z"),
        ("a\x00b\x1b[31m", "a b [31m"),
        ("One.\n  - two\x1b", "One.\n  - two"),
        (" \u3000 ", ""),
    ],
)
def test_white_space_of_any_kind_is_a_space(text: str, clean: str) -> None:
    assert one_line(text) == clean
