from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.spec_items import ITEMS, V0_ITEM, json_schemas, plain
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import ToolSpec
from txagent_train.data.loading import raise_fault
from txagent_train.data.schemas import with_required_lists
from txagent_train.data.toolspecs import AUTO, FORMATS, format_for, states_parameters
from txagent_train.data.toolspecs.reading import read_specs
from txagent_train.data.toolspecs.tooluniverse_v0 import with_required_marks

REAL = [
    ("tooluniverse_v0/tools.json", "tooluniverse_v0", 214),
    ("tooluniverse_v1/specs.json", "tooluniverse_v1", 60),
    ("genegpt/tools.json", "openai", 6),
    ("openai_messages/tools.json", "openai", 14),
    ("biotool/few_shot.json", "biotool", 15),
    ("tool_retrieval/metatool/tools.jsonl", "plain", 199),
    ("tool_retrieval/seal_tools/tools.jsonl.gz", "plain", 4076),
]


def _same(one: Any, other: Any) -> bool:
    """To the letter: the order of keys counts, and 1 is not 1.0 or true."""
    return json.dumps(one) == json.dumps(other)


def _lenient(path: Path, format: str = AUTO) -> Any:
    faults: list[DataError] = []
    return read_specs([path], format, on_fault=faults.append), faults


@pytest.mark.parametrize(("name", "format", "count"), REAL)
def test_real_toolboxes_come_back_to_the_letter(
    shared_data: Callable[[str], Path], name: str, format: str, count: int
) -> None:
    path = shared_data(name)
    found, faults = _lenient(path)
    assert not faults and dict(found.formats) == {format: count}
    text = path.read_bytes()
    if name.endswith(".json"):
        items = json.loads(text)
        assert [spec.spec.name for spec in found.specs] == [
            (item.get("document") or item.get("function") or item)["name"] if format in ("openai", "biotool")
            else item["name"]
            for item in items
        ]  # fmt: skip
        for item, placed in zip(items, found.specs, strict=True):
            assert _same(FORMATS[format].write(placed.spec), item), placed.spec.name
    for placed in found.specs:
        again = FORMATS[format].read(FORMATS[format].write(placed.spec))
        assert again == placed.spec


def test_what_can_be_derived_is_not_kept_twice(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("tooluniverse_v0/tools.json")
    found, _ = _lenient(path)
    kept = [placed for placed in found.specs if "parameters" not in placed.spec.origin.get("derived", ["parameters"])]
    assert len(kept) <= 10, [placed.spec.name for placed in kept]
    size = sum(len(json.dumps([spec.spec.parameters, spec.spec.origin])) for spec in found.specs)
    assert size < 1.4 * len(json.dumps(json.loads(path.read_text())))


@pytest.mark.parametrize("format", sorted(ITEMS))
@settings(max_examples=60)
@given(data=st.data())
def test_every_item_comes_back_to_the_letter(format: str, data: st.DataObject) -> None:
    item = data.draw(ITEMS[format])
    kept = json.dumps(item)
    spec = FORMATS[format].read(item)
    assert _same(FORMATS[format].write(spec), item)
    assert json.dumps(item) == kept, "reading changed the item"
    stored = FORMATS["native"].read(json.loads(json.dumps(FORMATS["native"].write(spec))))
    assert _same(FORMATS[format].write(stored), item)


MARKED = {"name": "f", "description": "x", "parameter": {"type": "object", "properties": {"a": {"required": True}}}}


@pytest.mark.parametrize(
    ("format", "item"),
    [
        ("plain", {"description": "x", "parameters": {}, "name": "f"}),
        ("openai", {"function": {"name": "f", "description": "x", "parameters": {}}, "type": "function"}),
        ("openai", {"type": "function", "function": {"name": "f"}}),
        ("plain", {"name": "f", "description": None, "parameters": None}),
        ("plain", {"name": "f", "parameters": {"enum": [1, 1.0, True, None, -0.0, 10**30]}, "n": [0, False, 0.0]}),
        ("tooluniverse_v0", MARKED),
        ("tooluniverse_v0", {**MARKED, "parameter": {"properties": {"a": {"required": True, "type": "string"}}}}),
        ("tooluniverse_v0", {**MARKED, "parameter": {"properties": {"a": {"required": "True"}}, "required": ["b"]}}),
        ("tooluniverse_v0", {**MARKED, "parameter": {"required": ["a"], "properties": {"a": {}}}}),
        ("tooluniverse_v1", {**MARKED, "required": ["a"]}),
        ("json_schema", {"type": "object", "title": "f", "properties": {}, "description": ""}),
    ],
)
def test_what_a_careless_copy_would_lose(format: str, item: dict[str, Any]) -> None:
    spec = FORMATS[format].read(item)
    assert _same(FORMATS[format].write(spec), item)


@settings(max_examples=80)
@given(json_schemas)
def test_marks_and_lists_are_inverses(schema: dict[str, Any]) -> None:
    lists = with_required_lists(schema)
    if isinstance(lists.get("required", []), list):
        back = with_required_lists(with_required_marks(lists))
        assert json.dumps(back, sort_keys=True) == json.dumps(with_required_lists(lists), sort_keys=True)


@pytest.mark.parametrize("format", ["tooluniverse_v0", "tooluniverse_v1", "openai", "plain", "biotool", "json_schema"])
def test_a_tool_of_another_format_can_be_written_and_read(format: str) -> None:
    spec = FORMATS["tooluniverse_v0"].read(V0_ITEM)
    back = FORMATS[format].read(FORMATS[format].write(spec))
    assert (back.name, back.description, back.parameters) == (spec.name, spec.description, spec.parameters)
    if format != "tooluniverse_v0":
        assert "label" not in json.dumps(FORMATS[format].write(spec))


def test_the_marks_of_v0_are_made_anew() -> None:
    spec = FORMATS["plain"].read(plain("f", a={"type": "string"}, b={"type": "object", "properties": {"c": {}}}))
    spec = replace(spec, parameters=spec.parameters | {"required": ["b"]})
    assert FORMATS["tooluniverse_v0"].write(spec)["parameter"] == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "required": False},
            "b": {"type": "object", "properties": {"c": {"required": False}}, "required": True},
        },
    }


def test_a_changed_tool_is_written_as_it_is_now_with_the_rest_as_it_was() -> None:
    item = {**V0_ITEM, "description": None}
    spec = FORMATS["tooluniverse_v0"].read(item)
    assert FORMATS["tooluniverse_v0"].write(replace(spec, name="other")) == {**item, "name": "other"}
    assert FORMATS["tooluniverse_v0"].write(replace(spec, description="New.")) == {**item, "description": "New."}


def test_the_odd_ones() -> None:
    finish = {"name": "Finish", "description": "End.", "parameter": {"type": "object", "properties": None}}
    assert FORMATS["tooluniverse_v0"].read(finish).parameters == {"type": "object", "properties": {}}
    beside = {**V0_ITEM, "required": ["limit"]}
    assert FORMATS["tooluniverse_v0"].read(beside).parameters["required"] == ["limit", "drug"]
    bare = {"name": "load", "description": "Load.", "type": "MCP"}
    spec = FORMATS["tooluniverse_v1"].read(bare)
    assert spec.parameters == {"type": "object", "properties": {}} and not states_parameters(spec)
    assert FORMATS["tooluniverse_v1"].write(spec) == bare


@pytest.mark.parametrize(
    ("format", "item", "reason"),
    [
        ("plain", {"description": "x", "parameters": {}}, "tool_without_name"),
        ("plain", {"name": " ", "parameters": {}}, "tool_without_name"),
        ("plain", {"name": "f", "parameters": "text"}, "invalid_tool_spec"),
        ("plain", {"name": "f", "description": 5}, "wrong_type"),
        ("openai", {"name": "f", "parameters": {}}, "not_a_tool"),
        ("tooluniverse_v0", {"name": "f", "parameter": [1]}, "invalid_tool_spec"),
        ("tooluniverse_v1", {"name": "f", "parameters": {}, "return_schema": {}}, "other_format"),
        ("openai", {"function": {"name": "f", "input_schema": {}}}, "other_format"),
        ("json_schema", {"properties": {}}, "tool_without_name"),
        ("json_schema", {"title": "f", "description": None}, "wrong_type"),
        ("native", {"name": "f"}, "missing_key"),
    ],
)
def test_what_is_no_tool_says_why(format: str, item: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError) as fault:
        FORMATS[format].read(item)
    assert fault.value.reason == reason


def test_a_format_says_what_it_cannot_hold() -> None:
    spec = ToolSpec("f", "A tool.", {"type": "object", "title": "F"})
    with pytest.raises(DataError, match="title") as fault:
        FORMATS["json_schema"].write(spec)
    assert fault.value.reason == "not_writable"
    marked = ToolSpec("f", "A tool.", {"properties": {"a": {"required": True}}})
    with pytest.raises(DataError, match="cannot hold the parameters of tool f"):
        FORMATS["plain"].write(marked)
    with pytest.raises(UserError, match="did you mean openai"):
        format_for("opnai")


# ---- files ----


def _file(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1), encoding="utf-8")
    return path


ONE, TWO = plain("one", a={"type": "string"}), plain("two")


@pytest.mark.parametrize(
    "content",
    [
        [ONE, TWO],
        {"one": ONE, "two": TWO},
        {"one": {key: ONE[key] for key in ("description", "parameters")}, "two": TWO},
        {"tools": [ONE, TWO]},
        {"functions": [ONE, TWO], "model": "x"},
        json.dumps(ONE) + "\n\n" + json.dumps(TWO),
        "\ufeff" + json.dumps([ONE, TWO]),
    ],
)
def test_every_kind_of_file_holds_the_same_tools(tmp_path: Path, content: Any) -> None:
    found = read_specs([_file(tmp_path / "t.json", content)], AUTO, on_fault=raise_fault)
    assert [placed.spec.name for placed in found.specs] == ["one", "two"]
    assert [placed.spec.parameters for placed in found.specs] == [ONE["parameters"], TWO["parameters"]]
    assert dict(found.formats) == {"plain": 2}


def test_one_spec_is_a_file_too_and_folders_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "none").mkdir()
    _file(tmp_path / "b.json", TWO)
    _file(tmp_path / "a.json", [ONE, ONE])
    _file(tmp_path / "c.json", [V0_ITEM])
    _file(tmp_path / "deep" / "aside.json", [plain("aside")])
    _file(tmp_path / "torn.json", "[{")
    _file(tmp_path / "notes.txt", "no tools")
    _file(tmp_path / "z.json", [{"version": 3}, 5])
    found, faults = _lenient(tmp_path)
    assert [placed.spec.name for placed in found.specs] == ["one", "two", "get_dose"]
    assert dict(found.formats) == {"plain": 2, "tooluniverse_v0": 1}
    assert (found.read, found.repeated) == (6, 1)
    told = [(fault.reason, Path(fault.path).name) for fault in faults]
    assert told == [("not_json", "torn.json"), ("unknown_format", "z.json")]
    with pytest.raises(DataError, match=r"no \.json or \.jsonl file"):
        read_specs([tmp_path / "none"], AUTO, on_fault=raise_fault)


def test_a_mapping_of_json_schemas_is_named_by_its_keys(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"drug": {"type": "string"}}}
    found = read_specs([_file(tmp_path / "t.json", {"get_dose": schema})], AUTO, on_fault=raise_fault)
    assert [(placed.spec.name, placed.spec.parameters) for placed in found.specs] == [("get_dose", schema)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{not json", "not_json"),
        ("", "not_json"),
        ("5", "not_tools"),
        ([{"version": 1}], "unknown_format"),
        ([ONE, 5], "not_a_tool"),
        ([ONE, {**ONE, "description": "Other."}], "duplicate_tool"),
        ({"one": {**ONE, "name": "two"}, "three": plain("three")}, "two_names"),
        ([ONE, {**TWO, "description": "\ud83d"}], "lone_surrogate"),
        ('[{"name": "f", "name": "g", "parameters": {}}]', "not_json"),
    ],
)
def test_a_faulty_file_says_why_and_where(tmp_path: Path, content: Any, reason: str) -> None:
    path = _file(tmp_path / "t.json", content)
    with pytest.raises(DataError) as fault:
        read_specs([path], AUTO, on_fault=raise_fault)
    assert fault.value.reason == reason and str(path) in str(fault.value)


def test_a_spec_that_is_nested_too_deeply_is_a_fault(tmp_path: Path) -> None:
    schema: dict[str, Any] = {}
    for _ in range(400):
        schema = {"properties": {"a": schema}}
    path = _file(tmp_path / "t.json", json.dumps([ONE, {"name": "deep", "parameters": schema}]))
    found, faults = _lenient(path)
    assert [placed.spec.name for placed in found.specs][:1] == ["one"]
    assert all("nested too deeply" in str(fault) for fault in faults)
