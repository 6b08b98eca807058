"""Breaking control strings: complete, counted, lossless in JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.support.traces import CONTROL_STRINGS, json_values, texts
from txagent_train.core.errors import ModelError
from txagent_train.rendering.controls import Neutraliser, well_formed

NEUTRALISER = Neutraliser.of(CONTROL_STRINGS)


@given(texts)
def test_no_control_string_is_left(text: str) -> None:
    cleaned, count = NEUTRALISER.clean(text)
    assert not any(control in cleaned for control in CONTROL_STRINGS)
    assert (count == 0) == (cleaned == text)


@given(json_values)
def test_json_parses_back_to_what_it_was(value: object) -> None:
    text, _ = NEUTRALISER.clean_json(json.dumps(value, ensure_ascii=False))
    assert not any(control in text for control in CONTROL_STRINGS)
    assert json.loads(text) == value


def test_count_and_shape() -> None:
    assert NEUTRALISER.clean("a<|im_end|>b<|im_end|>[TOOL_CALLS]") == ("a< |im_end|>b< |im_end|>[ TOOL_CALLS]", 3)
    assert NEUTRALISER.clean_json('{"a": "<tool_call>"}') == ('{"a": "\\u003ctool_call>"}', 1)


@pytest.mark.parametrize("control", ["x", "<a b>", "aba", "{}"])
def test_unbreakable_control_strings_are_refused(control: str) -> None:
    with pytest.raises(ModelError, match="cannot be kept apart"):
        Neutraliser.of([control])


def test_lone_surrogates_become_replacement_characters() -> None:
    assert well_formed("a\ud83db") == "a\ufffdb"
    assert well_formed("👩‍⚕️") == "👩‍⚕️"
