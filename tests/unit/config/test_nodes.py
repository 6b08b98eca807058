from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.config.nodes import Node, YamlProblem, dump_yaml, find, merge, plain, read_yaml, replace

FILE = Path("recipe.yaml")


def tree(text: str) -> Node:
    root, problems = read_yaml(text, FILE)
    assert problems == []
    return root


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-4", 2e-4),
        ("2.0e-4", 2e-4),
        (".5", 0.5),
        ("1.", 1.0),
        ("-3", -3),
        ("32_768", 32768),
        ("0x10", 16),
        ("010", "010"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("~", None),
        ("", None),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("llama3", "llama3"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    read = plain(tree(f"key: {text}"))["key"]
    assert read == value
    assert type(read) is type(value)


def test_each_value_knows_its_line() -> None:
    root = tree("a: 1\nb:\n  c: [x,\n    {d: 2}]\n")
    for key, line in ((("a",), 1), (("b",), 2), (("b", "c"), 3), (("b", "c", 1, "d"), 4)):
        node = find(root, key)
        assert node is not None
        assert (node.place.file, node.place.line) == (FILE, line)
    assert find(root, ("b", "c", 7)) is None
    assert find(root, ("a", "x", "y")) is None


def test_a_key_that_stands_twice_is_a_problem_with_both_lines() -> None:
    _, problems = read_yaml("train:\n  epochs: 1\n  seed: 2\n  epochs: 3\n", FILE)
    assert [(problem.line, problem.text) for problem in problems] == [
        (4, "train.epochs: stands twice, first in line 2")
    ]


def test_a_key_that_is_no_text_is_a_problem() -> None:
    _, problems = read_yaml("a: 1\n2: b\n[c]: d\n", FILE)
    assert [problem.line for problem in problems] == [2, 3]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 1\nb: [1, 2\n", 3), ("a: 1\n\tb: 2\n", 2), ("a: *nowhere\n", 1), ("a: 1\n--- \nb: 2\n", 2), ("a\x00: 1", 1)],
)
def test_what_is_not_yaml_is_named_with_its_line(text: str, line: int) -> None:
    with pytest.raises(YamlProblem) as caught:
        read_yaml(text, FILE)
    assert caught.value.line == line


def test_an_alias_inside_itself_is_a_problem_and_not_an_endless_loop() -> None:
    with pytest.raises(YamlProblem, match="alias"):
        read_yaml("a: &x\n  b: *x\n", FILE)
    assert plain(tree("a: &x {b: 1}\nc: *x")) == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("text", ["a: !!python/object/apply:os.system [ls]", "a: !!int x"])
def test_tags_build_nothing(text: str) -> None:
    root, _ = read_yaml(text, FILE)
    assert plain(root)["a"] in (["ls"], None)


def test_merge_replaces_lists_and_values_and_merges_sections() -> None:
    base = tree("a: {x: 1, y: {z: 2}}\nlist: [1, 2, 3]\nonly: 1")
    over = tree("a: {y: {z: 3}}\nlist: [4]\nnew: 5")
    merged = merge(base, over)
    assert plain(merged) == {"a": {"x": 1, "y": {"z": 3}}, "list": [4], "only": 1, "new": 5}
    assert plain(base)["a"] == {"x": 1, "y": {"z": 2}}


def test_replace_leaves_the_old_tree_alone() -> None:
    root = tree("a: [{b: 1}, {b: 2}]")
    changed = replace(root, ("a", 1, "b"), tree("3"))
    assert plain(changed) == {"a": [{"b": 1}, {"b": 3}]}
    assert plain(root) == {"a": [{"b": 1}, {"b": 2}]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_what_is_dumped_is_read_back_here_and_by_plain_yaml(data: dict[str, object]) -> None:
    text = dump_yaml(data)
    root, problems = read_yaml(text, FILE)
    assert problems == []
    assert plain(root) == data
    assert yaml.safe_load(text) == data


@pytest.mark.parametrize("text", ["2e-4", "off", "0o17", "null", "1_0", "2026-01-01", "", "~"])
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    root, _ = read_yaml(dump_yaml({"key": text}), FILE)
    assert plain(root) == {"key": text}
