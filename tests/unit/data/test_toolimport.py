from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.spec_items import V0_ITEM, plain
from txagent_train.core.errors import DataError, UserError
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolimport import export_tools, import_tools


def _file(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["tooluniverse_v0/tools.json", "tooluniverse_v1/specs.json", "biotool/few_shot.json"])
def test_in_and_out_to_the_letter(shared_data: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    source = shared_data(name)
    report = import_tools([source], tmp_path / "t.json")
    assert report.guessed and not report.dropped and report.dropped_file is None
    toolbox = Toolbox.read(tmp_path / "t.json")
    assert toolbox.hash == report.hash
    written = export_tools(toolbox, tmp_path / "back.json")
    assert (written.formats, written.reduced) == (report.formats, 0)
    items = json.loads(source.read_text())
    assert json.dumps(json.loads((tmp_path / "back.json").read_text())) == json.dumps(items)
    export_tools(toolbox, tmp_path / "back.jsonl")
    assert [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().splitlines()] == items
    native = export_tools(toolbox, tmp_path / "native.json", format="native")
    assert native.reduced == 0 and Toolbox.read(tmp_path / "native.json") == toolbox


def test_every_item_is_counted(tmp_path: Path) -> None:
    items = [V0_ITEM, V0_ITEM, {"name": "bare", "description": "x", "type": "T"}, 5, {"name": "", "parameter": {}}]
    out = tmp_path / "t.json"
    report = import_tools([_file(tmp_path / "in.json", items)], out)
    assert report.read == report.accepted + report.repeated + sum(report.dropped.values()) == 5
    assert report.dropped == {"not_a_tool": 1, "tool_without_name": 1} and report.no_parameters == 1
    lines = [json.loads(line) for line in Path(str(report.dropped_file)).read_text().splitlines()]
    assert [(line["line"], line["reason"]) for line in lines] == [(4, "not_a_tool"), (5, "tool_without_name")]
    # A later import that drops nothing leaves no side file of this one.
    import_tools([_file(tmp_path / "in.json", items[:1])], out, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.json", "t.json"]


def test_two_tools_of_one_name_stop_unless_the_first_is_wanted(tmp_path: Path) -> None:
    first = _file(tmp_path / "a.json", [plain("get_dose")])
    second = _file(tmp_path / "b.json", [V0_ITEM])
    out = tmp_path / "t.json"
    with pytest.raises(DataError, match=r"b\.json:1: the tool get_dose differs .*a\.json:1") as fault:
        import_tools([first, second], out)
    assert fault.value.reason == "duplicate_tool" and not out.exists()
    report = import_tools([first, second], out, duplicates="first")
    assert report.dropped == {"duplicate_tool": 1} and "--duplicates first" not in str(Toolbox.read(out).tools)
    assert Toolbox.read(out).tools[0].description == "What get_dose does."


def test_nothing_accepted_and_taken_names(tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    with pytest.raises(DataError, match="none of the 1 specs is accepted\n  1 tool_without_name"):
        import_tools([_file(tmp_path / "in.json", [{"parameters": {}}])], out)
    assert not out.exists()
    import_tools([_file(tmp_path / "in.json", [V0_ITEM])], out)  # what the failed one left is not in the way
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in.json", "t.json"]
    out.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        import_tools([_file(tmp_path / "in.json", [V0_ITEM])], out)
    with pytest.raises(UserError, match="no format 'nonsense'"):
        import_tools([tmp_path / "in.json"], tmp_path / "u.json", format="nonsense")
    with pytest.raises(DataError, match="there is no such file"):
        import_tools([tmp_path / "absent.json"], tmp_path / "u.json")


def test_what_another_format_has_no_place_for_is_said(tmp_path: Path) -> None:
    import_tools([_file(tmp_path / "in.json", [V0_ITEM, {**V0_ITEM, "name": "two"}])], tmp_path / "t.json")
    report = export_tools(Toolbox.read(tmp_path / "t.json"), tmp_path / "o.json", format="openai")
    assert (report.written, report.formats, report.reduced) == (2, {"openai": 2}, 2)
    function = json.loads((tmp_path / "o.json").read_text())[0]["function"]
    assert function["parameters"]["required"] == ["drug"] and "required" not in str(
        function["parameters"]["properties"]
    )


@pytest.mark.parametrize("name", ["back.json.gz", "back.jsonl.gz"])
def test_an_export_is_packed_where_its_name_says_so(tmp_path: Path, name: str) -> None:
    import_tools([_file(tmp_path / "in.json", [V0_ITEM, {**V0_ITEM, "name": "two"}])], tmp_path / "t.json")
    out = tmp_path / name
    export_tools(Toolbox.read(tmp_path / "t.json"), out)
    text = gzip.decompress(out.read_bytes()).decode()
    assert text.startswith("{") == name.endswith("l.gz")
    assert [tool.name for tool in Toolbox.read(out).tools] == ["get_dose", "two"]
    with pytest.raises(UserError, match="not written"):
        export_tools(Toolbox.read(out), tmp_path / "back.json.zst")


@pytest.mark.parametrize(
    "content",
    [
        '{"kind": "rewrites", "version": 1, "toolbox_hash": "x", "held_out_tools": [], "writer": {}}\n'
        '{"tool": "a", "version": 1, "name": "b", "description": "B.", "arguments": {}, "held_out": false}\n',
        '{"kind": "rewrites", "version": 1, "toolbox_hash": "x", "held_out_tools": [], "writer": {}}\n',
        '{"toolbox_hash": "x", "embedder": "tfidf", "neighbours": {"a": ["b"]}}',
    ],
)
def test_a_file_about_tools_is_not_taken_for_tools(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match="not tools") as caught:
        import_tools([path], tmp_path / "t.json")
    assert caught.value.reason == "not_tools"
    with pytest.raises(DataError, match="not tools"):
        Toolbox.read(path, "plain")
