from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from txagent_train.core.errors import DataError
from txagent_train.core.records import ToolCall, ToolSpec
from txagent_train.data.rewrites import ArgumentRewrite, RewriteSet, ToolRewrite
from txagent_train.data.toolbox import Toolbox

NAMES = st.text(alphabet="abcd/~$", min_size=1, max_size=3)
SPEC = ToolSpec(
    "get_dose",
    "Dose of a drug.",
    {
        "type": "object",
        "properties": {
            "drug": {"type": "string", "description": "Its name.", "enum": ["drug", "age"], "default": "drug"},
            "age": {"type": ["integer", "null"], "minimum": 0},
            "filter": {"type": "object", "properties": {"drug": {"type": "string"}}, "required": ["drug"]},
        },
        "required": ["drug"],
    },
    origin={"name": "get_dose"},
)
REWRITE = ToolRewrite(
    "get_dose",
    1,
    "dose_of",
    "How much to take.",
    {
        "drug": ArgumentRewrite("age", "The medicine."),  # two that change places
        "age": ArgumentRewrite("drug", "Years."),
        "filter": ArgumentRewrite("narrow", ""),
    },
)


def rewrite(names: dict[str, str]) -> ToolRewrite:
    return ToolRewrite("t", 1, "u", "d", {old: ArgumentRewrite(new, "") for old, new in names.items()})


@st.composite
def renamings(draw: st.DrawFn) -> dict[str, str]:
    old = draw(st.lists(NAMES, unique=True, max_size=4))
    return dict(zip(old, draw(st.lists(NAMES, unique=True, min_size=len(old), max_size=len(old))), strict=True))


def test_a_spec_is_shown_in_the_words_of_the_version() -> None:
    shown = REWRITE.spec(SPEC)
    assert (shown.name, shown.description, shown.origin) == ("dose_of", "How much to take.", {})
    assert shown.parameters == {
        "type": "object",
        "properties": {
            "age": {"type": "string", "description": "The medicine.", "enum": ["drug", "age"], "default": "drug"},
            "drug": {"type": ["integer", "null"], "minimum": 0, "description": "Years."},
            "narrow": {"type": "object", "properties": {"drug": {"type": "string"}}, "required": ["drug"]},
        },
        "required": ["age"],
    }
    assert list(shown.parameters["properties"]) == ["age", "drug", "narrow"]


def test_the_original_is_left_as_it_is() -> None:
    before = json.dumps(SPEC.parameters)
    REWRITE.spec(SPEC)
    assert json.dumps(SPEC.parameters) == before


@pytest.mark.parametrize(
    ("parameters", "valid", "invalid"),
    [
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": 1}, {"b": 1}], [{"c": 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}]),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, [{"a": 1, "b": 2}], [{"a": 1}]),
        ({"not": {"required": ["a", "b"]}}, [{"a": 1}], [{"a": 1, "b": 1}]),
        ({"dependentSchemas": {"a": {"required": ["c"]}}}, [{"a": 1, "c": 1}], [{"a": 1}]),
        ({"enum": [{"a": 1}, {"b": 2}]}, [{"a": 1}], [{"a": 2}]),
        (
            {"$defs": {"x": {"$ref": "#/properties/a"}}, "properties": {"c": {"$ref": "#/$defs/x"}}},
            [{"c": 1}],
            [{"c": "1"}],
        ),
        ({"properties": {"c": {"$ref": "#/properties/a"}}}, [{"c": 1}], [{"c": "1"}]),
        ({"additionalProperties": False}, [{"a": 1}], [{"z": 1}]),
    ],
)  # fmt: skip
def test_a_call_is_as_valid_after_renaming_as_before(
    parameters: dict[str, Any], valid: list[dict[str, Any]], invalid: list[dict[str, Any]]
) -> None:
    properties = {name: {"type": "integer"} for name in "abc"} | parameters.get("properties", {})
    spec = ToolSpec("t", "", {"type": "object"} | parameters | {"properties": properties})
    version = rewrite({"a": "b", "b": "c", "c": "a"})
    before, after = Draft202012Validator(spec.parameters), Draft202012Validator(version.spec(spec).parameters)
    for arguments, is_valid in [(item, True) for item in valid] + [(item, False) for item in invalid]:
        assert before.is_valid(arguments) == is_valid
        assert after.is_valid(version.call(ToolCall("t", arguments)).arguments) == is_valid


def test_a_reference_to_a_property_with_odd_letters_is_renamed() -> None:
    properties = {"a/b~c": {"type": "integer"}, "d": {"$ref": "#/properties/a~1b~0c"}}
    shown = rewrite({"a/b~c": "e~f", "d": "g"}).spec(ToolSpec("t", "", {"properties": properties}))
    assert shown.parameters["properties"]["g"] == {"$ref": "#/properties/e~0f"}


@given(renamings(), st.dictionaries(NAMES, st.integers()))
def test_a_call_comes_back_as_it_was(names: dict[str, str], arguments: dict[str, int]) -> None:
    version, call = rewrite(names), ToolCall("t", dict(arguments))
    try:
        renamed = version.call(call)
    except DataError as error:
        assert error.reason == "argument_collision"
        assert any(name in names.values() and name not in names for name in arguments)
        return
    assert renamed.name == "u" and list(renamed.arguments.values()) == list(arguments.values())
    assert version.original_call(renamed) == call
    assert list(version.original_call(renamed).arguments) == list(arguments)


def test_an_unknown_argument_stays_but_may_not_hide_another() -> None:
    version = rewrite({"a": "b"})
    assert version.call(ToolCall("t", {"x": 1, "a": 2})).arguments == {"x": 1, "b": 2}
    with pytest.raises(DataError) as caught:
        version.call(ToolCall("t", {"b": 1}))
    assert caught.value.reason == "argument_collision"


def test_arguments_must_map_one_to_one() -> None:
    with pytest.raises(DataError, match="two arguments named 'x'"):
        rewrite({"a": "x", "b": "x"})
    with pytest.raises(DataError, match="two arguments named 'b'"):
        rewrite({"a": "b"}).spec(ToolSpec("t", "", {"properties": {"a": {}, "b": {}}}))
    with pytest.raises(DataError, match="which the tool does not take"):
        rewrite({"a": "b"}).spec(ToolSpec("t", "", {"type": "object"}))
    with pytest.raises(DataError, match="empty name"):
        rewrite({"a": " "})


def rewrite_set() -> RewriteSet:
    toolbox = Toolbox((SPEC, ToolSpec("other", "Other.", {})))
    held_out = replace(REWRITE, version=2, name="dose_for", held_out=True)
    other = ToolRewrite("other", 1, "another", "Another.", {}, held_out=True)
    by_tool = {"get_dose": (REWRITE, held_out), "other": (other,)}
    return RewriteSet(toolbox.hash, frozenset({"other"}), by_tool, {"name": "rules"})


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    rewrite_set().write(tmp_path / name)
    assert RewriteSet.read(tmp_path / name) == rewrite_set()


def test_training_sees_no_held_out_version_and_no_held_out_tool() -> None:
    rewrites = rewrite_set()
    assert rewrites.training("get_dose") == (REWRITE,)
    assert rewrites.training("other") == () == rewrites.training("unknown")
    with pytest.raises(DataError, match="held out"):
        RewriteSet("", frozenset({"get_dose"}), {"get_dose": (REWRITE,)})
    with pytest.raises(DataError, match="same number"):
        RewriteSet("", frozenset(), {"get_dose": (REWRITE, REWRITE)})


def test_rewrites_fit_their_toolbox_alone() -> None:
    rewrites = rewrite_set()
    rewrites.check_fits(Toolbox((ToolSpec("other", "Other.", {}), SPEC)))
    for tools in ((SPEC,), (SPEC, ToolSpec("other", "Changed.", {}))):
        with pytest.raises(DataError, match="rewrites for another toolbox") as caught:
            rewrites.check_fits(Toolbox(tools))
        assert caught.value.reason == "other_toolbox"


def lines_of(tmp_path: Path) -> list[dict[str, Any]]:
    rewrite_set().write(tmp_path / "good.jsonl")
    return [json.loads(line) for line in (tmp_path / "good.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("line", "change", "reason"),
    [
        (1, {"kind": "traces"}, "invalid_rewrite"),
        (1, {"version": 2}, "invalid_rewrite"),
        (1, {"held_out_tools": "other"}, "wrong_type"),
        (1, {"extra": 1}, "unknown_key"),
        (2, {"version": "1"}, "wrong_type"),
        (2, {"held_out": 1}, "wrong_type"),
        (2, {"name": ""}, "invalid_rewrite"),
        (2, {"arguments": {"drug": "x"}}, "wrong_type"),
        (2, {"arguments": {"drug": {"name": "x"}}}, "missing_key"),
        (3, {"extra": 1}, "unknown_key"),
        (2, {"version": 0}, "invalid_rewrite"),
        (2, {"name": "Finish"}, "invalid_rewrite"),
        (2, {"name": "tool_rag"}, "invalid_rewrite"),
        (2, {"tool": "Tool_RAG"}, "invalid_rewrite"),
        (2, {"name": "two\nlines"}, "invalid_rewrite"),
        (2, {"name": "a" * 65}, "invalid_rewrite"),
        (2, {"name": "a-b"}, "invalid_rewrite"),
        (2, {"description": "half \ud83d"}, "invalid_rewrite"),
        (2, {"description": "nul \x00"}, "invalid_rewrite"),
        (2, {"arguments": {"drug": {"name": "x y", "description": ""}}}, "invalid_rewrite"),
        (2, {"arguments": {"drug": {"name": "x", "description": "\x1b[31m"}}}, "invalid_rewrite"),
        (3, {"name": "dose_of"}, "invalid_rewrite"),
        (3, {"name": "DOSE_of"}, "invalid_rewrite"),
        (4, {"name": "dose_for"}, "invalid_rewrite"),
        (3, {"version": 1}, "invalid_rewrite"),
        (4, {"held_out": False}, "invalid_rewrite"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: int, change: dict[str, Any], reason: str) -> None:
    lines = lines_of(tmp_path)
    lines[line - 1] |= change
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in lines))
    with pytest.raises(DataError) as caught:
        RewriteSet.read(path)
    assert (caught.value.reason, caught.value.line) == (reason, line)


def test_a_file_without_a_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text(json.dumps(lines_of(tmp_path)[0]) + "\n")
    with pytest.raises(DataError, match="no version of any tool") as caught:
        RewriteSet.read(path)
    assert caught.value.reason == "no_rewrites" and caught.value.path == str(path)


@pytest.mark.parametrize(
    ("line", "change", "problem"),
    [
        (1, {"held_out_tools": ["other", "absent"]}, "absent is held out, but"),
        (4, {"tool": "absent"}, "absent is rewritten, but"),
        (3, {"name": "other"}, "has the name of a tool of the toolbox, other"),
        (3, {"name": "GET_dose"}, "has the name of a tool of the toolbox, get_dose"),
        (2, {"arguments": {"nope": {"name": "x", "description": ""}}}, "rewrites 'nope', which the tool does not take"),
        (2, {"arguments": {"drug": {"name": "age", "description": ""}}}, "two arguments named 'age'"),
    ],
)
def test_a_version_that_is_not_of_the_toolbox_is_named(
    tmp_path: Path, line: int, change: dict[str, Any], problem: str
) -> None:
    lines = lines_of(tmp_path)
    lines[line - 1] |= change
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in lines))
    rewrites = RewriteSet.read(path)
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        rewrites.check_fits(Toolbox((SPEC, ToolSpec("other", "Other.", {}))))
    assert (caught.value.reason, caught.value.path, caught.value.line) == ("invalid_rewrite", str(path), line)


def test_the_set_for_evaluation_is_sound() -> None:
    kept = replace(rewrite_set(), held_out_tools=frozenset(), by_tool={"get_dose": rewrite_set().by_tool["get_dose"]})
    chosen = kept.for_evaluation()
    chosen.check_fits(Toolbox((SPEC, ToolSpec("other", "Other.", {}))))
    assert [item.name for item in chosen.training("get_dose")] == ["dose_for"]


def test_names_that_the_schema_binds_are_not_changed() -> None:
    bound = ToolSpec("t", "", {"properties": {"a": {}}, "allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {}}})
    with pytest.raises(DataError, match="its schema keeps their names: \\$ref binds them"):
        rewrite({"a": "b"}).spec(bound)
    assert rewrite({"a": "a"}).spec(bound).parameters == bound.parameters | {"properties": {"a": {}}}


def test_no_argument_takes_a_name_that_the_schema_has_elsewhere() -> None:
    spec = ToolSpec("t", "", {"properties": {"a": {}}, "anyOf": [{"required": ["b"]}, {"required": ["a"]}]})
    with pytest.raises(DataError, match="two arguments named 'b'"):
        rewrite({"a": "b"}).spec(spec)


def test_an_empty_file_is_no_file_of_rewrites(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no file of rewrites"):
        RewriteSet.read(tmp_path / "empty.jsonl")
