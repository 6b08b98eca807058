from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.data.toollists import listed_names, name_of, told_texts, unpacked, without

GONE = frozenset({"secret_tool", "dose finder", "search"})

FORMS: list[tuple[Any, Any]] = [
    (["get_dose", "secret_tool", "search"], ["get_dose"]),
    (["get_dose: a dose", "secret_tool: a cure"], ["get_dose: a dose"]),
    ([{"name": "secret_tool", "x": 1}, {"name": "get_dose"}], [{"name": "get_dose"}]),
    ([{"tool_name": "secret_tool"}, {"tool": "get_dose", "score": 1}], [{"tool": "get_dose", "score": 1}]),
    ([{"tool": {"name": "secret_tool"}, "score": 0.5}], []),
    ([{"type": "function", "function": {"name": "search"}}], []),
    ([["get_dose", 0.9], ["secret_tool", 0.8]], [["get_dose", 0.9]]),
    ([["secret_tool", "get_dose"], ["search"]], [["get_dose"], []]),
    ([{"secret_tool": "a cure"}, {"get_dose": "a dose"}], [{"get_dose": "a dose"}]),
    ({"secret_tool": {"d": 1}, "tools": ["secret_tool"]}, {"tools": []}),
    ([json.dumps({"name": "secret_tool"}), json.dumps({"name": "get_dose"})], ['{"name": "get_dose"}']),
    ({"content": '["secret_tool", "get_dose"]'}, {"content": '["get_dose"]'}),
    ({"error": "none; known: get_dose, secret_tool"}, {"error": "none; known: get_dose"}),
    ('["get_dose", "secret_tool"]', '["get_dose"]'),
    ('["get_dose","secret_tool"]\n', '["get_dose"]\n'),
    (json.dumps({"tools": [{"name": "search"}, {"name": "é"}]}, indent=2, ensure_ascii=False),
     json.dumps({"tools": [{"name": "é"}]}, indent=2, ensure_ascii=False)),
    (json.dumps(json.dumps(["secret_tool", "get_dose"])), json.dumps('["get_dose"]')),
    ("['get_dose', 'secret_tool']", "['get_dose']"),
    ("[('get_dose', 0.9), ('secret_tool', 0.8)]", "[('get_dose', 0.9)]"),
    ("get_dose, secret_tool", "get_dose"),
    ("Found: secret_tool, get_dose, dose finder.", "Found: get_dose."),
    ("Found: a, 'secret_tool', `b`.\nNone else.", "Found: a, `b`.\nNone else."),
    ("1. get_dose: x\n2. secret_tool: y\n   and more\n3. b: z", "1. get_dose: x\n2. b: z"),
    ("Tools:\n- get_dose\n- **secret_tool** - a cure\n\nDone, all.", "Tools:\n- get_dose\n\nDone, all."),
    ("get_dose\nsearch\nb", "get_dose\nb"),
]  # fmt: skip
KEPT: list[Any] = [
    "secret_tool", "Use get_dose and secret_tool.", "I search, then I look.", {"name": "secret_tool"},
    {"name": "get_dose", "description": "Like a, secret_tool, b."}, 5, None, "", "[not json", '"a" and "b"',
    [{"name": "get_dose", "parameters": {"properties": {"search": {"type": "string"}}}}],
    "One line.\nsecret_tool failed: no drug, search again",
]  # fmt: skip


@pytest.mark.parametrize(("value", "rest"), FORMS)
def test_tools_are_taken_out_of_a_list_in_any_form(value: Any, rest: Any) -> None:
    before = json.dumps(value)
    assert without(value, GONE.__contains__) == rest
    assert json.dumps(value) == before, "what was given is not changed"
    assert GONE & set(listed_names(value))
    assert not GONE & set(listed_names(rest))


@pytest.mark.parametrize("value", KEPT)
def test_what_is_no_list_of_tools_stays(value: Any) -> None:
    assert without(value, GONE.__contains__) == value


@pytest.mark.parametrize(
    ("entry", "name"),
    [("a_b", "a_b"), ("a b", "a b"), ("`a_b` - does", "a_b"), ({"function": {"name": "x"}}, "x"), (["x", 0.5], "x"),
     (["x", "y"], None), ({"score": 1}, None), (5, None), ("(", "(")],
)  # fmt: skip
def test_the_tool_that_an_entry_is_about(entry: Any, name: str | None) -> None:
    assert name_of(entry) == name


_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
_styles = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 2, 4])},
    optional={"separators": st.just((",", ":"))},
).filter(lambda style: style["indent"] is None or "separators" not in style)


@given(
    value=st.one_of(st.lists(_values), st.dictionaries(st.text(), _values)),
    style=_styles,
    end=st.sampled_from(["", "\n"]),
)
def test_what_is_unpacked_is_packed_as_it_was(value: Any, style: dict[str, Any], end: str) -> None:
    for text in (json.dumps(value, **style) + end, repr([value, "'", ("a", 1)])):
        packed = unpacked(text)
        assert packed is not None and packed.pack(packed.value) == text


@pytest.mark.parametrize(
    "text",
    ["plain", "[a_b]", "{x}", "(1", '"a" "b"', "[1e400]", "[NaN]", "{1: 'x'}", "[b'x']", "['x', 2j]", "['\\d'",
     '{"a": 1, "a": 2}', "[" * 5000, "[" * 400 + "]" * 400],
)  # fmt: skip
def test_what_is_only_text_is_not_unpacked(text: str) -> None:
    assert unpacked(text) is None and without(text, GONE.__contains__) == text


def test_texts_inside_texts_are_found() -> None:
    inner = json.dumps([{"name": "get_dose", "description": "a\nb"}])
    assert list(told_texts({"content": inner, "n": 1})) == ["content", "n", "name", "description", "get_dose", "a\nb"]
