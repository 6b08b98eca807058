from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.data.spelling import is_valid_name, text_fault


@pytest.mark.parametrize("name", ["get_dose", "a", "A1", "a" * 64])
def test_a_name_that_every_client_takes(name: str) -> None:
    assert is_valid_name(name)


@pytest.mark.parametrize("name", ["", "1a", "a-b", "class", "ä", "a" * 65, "a b", "a\n", "a\ud800"])
def test_a_name_that_some_client_refuses(name: str) -> None:
    assert not is_valid_name(name)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a\x00b", "'\\x00'"),
        ("\x1b[31m", "'\\x1b'"),
        ("a\x7f", "'\\x7f'"),
        ("\x9b", "'\\x9b'"),
        ("\ud83d", "surrogate"),
    ],
)
def test_what_no_text_should_hold_is_named(text: str, fault: str) -> None:
    assert fault in text_fault(text) and text_fault(text).isprintable()


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t\r")))
def test_any_other_text_is_sound(text: str) -> None:
    assert text_fault(text) == ""
