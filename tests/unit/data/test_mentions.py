from __future__ import annotations

import pytest

from txagent_train.data.mentions import Word, count_mentions, is_identifier, replace_words

WORDS = {
    "get_dose": Word("A", False),
    "get_dose_form": Word("B", False),
    "get": Word("C", True),
    "get-it": Word("get-it", False),
    "it": Word("D", False),
}


@pytest.mark.parametrize(
    ("text", "expected", "count"),
    [
        ("get_dose", "A", 1),
        ("get_dose.get_dose_form/get_doses xget_dose get_dose2", "A.B/get_doses xget_dose get_dose2", 2),
        ("get it, 'get' it", "get D, 'C' D", 3),
        ("get-it", "get-it", 1),
        ("éget_dose get_doseé", "éget_dose get_doseé", 0),
        ("(get_dose)\nget_dose", "(A)\nA", 2),
        ("", "", 0),
    ],
)
def test_whole_names_are_replaced(text: str, expected: str, count: int) -> None:
    assert replace_words(text, WORDS) == (expected, count)


def test_replacing_is_at_once_and_not_one_after_the_other() -> None:
    swap = {"one_a": Word("one_b", False), "one_b": Word("one_a", False)}
    assert replace_words("one_a one_b", swap) == ("one_b one_a", 2)


def test_counting() -> None:
    text = "search 'search' research"
    assert count_mentions(text, "search", quoted=False) == 2
    assert count_mentions(text, "search", quoted=True) == 1


@pytest.mark.parametrize("name", ["get_dose", "getDose", "v2", "v1-get"])
def test_names_that_no_word_is(name: str) -> None:
    assert is_identifier(name)


@pytest.mark.parametrize("name", ["search", "Search", "NCBI", "follow-up", "é"])
def test_names_that_a_word_may_be(name: str) -> None:
    assert not is_identifier(name)
