from __future__ import annotations

import pytest

from txagent_train.core.records import ToolSpec
from txagent_train.data.mentions import (
    Names,
    Word,
    count_mentions,
    is_identifier,
    is_in_other_case,
    reads_alike,
    replace_words,
)

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


@pytest.mark.parametrize(
    "name",
    ["get_dose", "getDose", "v2", "v1-get", "get-dose", "fda.search", "dose finder", "follow-up", "é", "поиск", "c++"],
)
def test_names_that_no_word_is(name: str) -> None:
    assert is_identifier(name)
    for text in (f"I call {name} now", f"{name}", f"({name})", f"{name}'s", f'a \\n{name}"'):
        assert count_mentions(text, name, quoted=False) == 1


@pytest.mark.parametrize("name", ["search", "Search", "NCBI", "a"])
def test_names_that_a_word_may_be(name: str) -> None:
    assert not is_identifier(name)


@pytest.mark.parametrize(
    "text",
    ['"search"', "'search'", "`search`", "“search”", '{\\"type\\": \\"search\\"}', "search(q='x')", "by search()"],
)
def test_an_ordinary_word_that_stands_as_a_tool(text: str) -> None:
    assert replace_words(text, {"search": Word("finder", True)}) == (text.replace("search", "finder"), 1)


@pytest.mark.parametrize("text", ["I search.", "search for a drug", "research(x)", "a search(es)", "the search's end"])
def test_an_ordinary_word_that_stands_as_a_word(text: str) -> None:
    assert replace_words(text, {"search": Word("finder", True)}) == (text, 0)


@pytest.mark.parametrize(
    "text",
    ["search", "get_dose, search", "Found: search, x.", "- search\n- x", "1. search: finds\n2. x", "x | search | y"],
)
def test_an_ordinary_word_in_a_list_of_tools(text: str) -> None:
    words = {"search": Word("finder", True)}
    assert replace_words(text, words, listed=True) == (text.replace("search", "finder"), 1)
    assert replace_words(text, words) == (text, 0)
    assert replace_words("the search failed, so search again", words, listed=True)[1] == 0


def test_a_capital_inside_a_sentence_makes_a_name_of_a_word() -> None:
    words = {"Search": Word("finder", True), "NCBI": Word("lookup", True)}
    text = "Search for it. I call Search, then search NCBI. Search again; (Search)."
    assert replace_words(text, words) == (
        "Search for it. I call finder, then search lookup. Search again; (Search).",
        2,
    )


def test_where_letters_are_not_set_apart_by_spaces_names_are_found() -> None:
    words = {"get_dose": Word("a_b", False), "查询": Word("find_it", False)}
    assert replace_words("我调用get_dose工具。get_dose를", words) == ("我调用a_b工具。a_b를", 2)
    assert replace_words("调用查询工具", words) == ("调用find_it工具", 1)
    assert replace_words("我 get_doses", words) == ("我 get_doses", 0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("I call get_dose.", "get_dose"),
        ("I call GET_DOSE.", "get_dose"),
        ("Fda.Search!", "fda.search"),
        ("the Dose finder", "dose finder"),
        ("`Lookup`", "lookup"),
        ('"text": "one\\nget_dose"', "get_dose"),
        ("调用查询工具", "查询"),
        ("I lookup", None),
        ("get_doses, my_get_dose, dose", None),
        ("", None),
    ],
)
def test_any_of_many_names_is_found_in_any_letter_case(text: str, name: str | None) -> None:
    names = Names(["get_dose", "fda.search", "dose finder", "lookup", "查询", "other_tool"])
    assert names.first(text) == name
    assert name is None or names.may_be_in(text)
    assert name != "lookup" or names.first(text, words=False) is None


def test_other_letter_case() -> None:
    assert is_in_other_case("Get_Dose and get_dose", "get_dose")
    assert not is_in_other_case("get_dose and Get_Doses", "get_dose")


def test_specs_that_read_alike() -> None:
    one = ToolSpec("a", "b", {"type": "object"}, {"format": "x"})
    assert reads_alike(one, ToolSpec("a", "b", {"type": "object"}))
    assert not reads_alike(one, ToolSpec("a", "c", {"type": "object"}))
