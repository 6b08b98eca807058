from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.spec_items import V0_ITEM, plain
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import ToolSpec
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolspecs import FORMATS

TOOLS = (FORMATS["tooluniverse_v0"].read(V0_ITEM), FORMATS["plain"].read(plain("two", a={"type": "string"})))


@pytest.mark.parametrize("name", ["tools.json", "tools.json.gz"])
def test_write_and_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    toolbox = Toolbox(TOOLS)
    toolbox.write(path)
    again = Toolbox.read(path)
    assert again == toolbox and again.hash == toolbox.hash
    assert [tool.name for tool in again.tools] == ["get_dose", "two"] == list(again.by_name)
    assert FORMATS["tooluniverse_v0"].write(again.tools[0]) == V0_ITEM
    with pytest.raises(UserError, match="exists already"):
        toolbox.write(path)
    first = path.read_bytes()
    toolbox.write(path, overwrite=True)
    assert path.read_bytes() == first


def test_the_file_is_a_json_list_with_a_tool_a_line(tmp_path: Path) -> None:
    Toolbox(TOOLS).write(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    assert len(text.splitlines()) == 4
    assert [sorted(item) for item in json.loads(text)] == [["description", "name", "origin", "parameters"]] * 2
    Toolbox(TOOLS).write(tmp_path / "t.json.gz")
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()).decode() == text


def test_the_hash_is_of_what_a_model_reads() -> None:
    one, two = TOOLS
    known = Toolbox(TOOLS).hash
    assert Toolbox((two, one)).hash == known
    assert Toolbox((replace(one, origin={}), two)).hash == known
    swapped = dict(reversed(two.parameters.items()))
    for other in (
        replace(two, name="x"),
        replace(two, description="x"),
        replace(two, parameters=swapped),
        replace(two, parameters=two.parameters | {"required": ["a"]}),
    ):
        assert Toolbox((one, other)).hash != known


def test_a_name_occurs_once() -> None:
    with pytest.raises(DataError, match="two tools are named get_dose") as fault:
        Toolbox((*TOOLS, ToolSpec("get_dose", "Other.", {})))
    assert fault.value.reason == "duplicate_tool"


def test_other_formats_are_converted_on_the_fly(tmp_path: Path, shared_data: Callable[[str], Path]) -> None:
    toolbox = Toolbox.read(shared_data("tooluniverse_v0/tools.json"))
    assert len(toolbox.tools) == 214 and toolbox.by_name["Tool_RAG"].parameters["required"] == ["description", "limit"]
    assert Toolbox.read(shared_data("tooluniverse_v0/tools.json"), "tooluniverse_v0").hash == toolbox.hash


@pytest.mark.parametrize("content", ["[]", "{}", '{"tools": []}'])
@pytest.mark.parametrize("format", ["auto", "plain"])
def test_a_file_without_tools_says_so(tmp_path: Path, content: str, format: str) -> None:
    (tmp_path / "empty.json").write_text(content)
    with pytest.raises(DataError, match="the file holds no tools") as caught:
        Toolbox.read(tmp_path / "empty.json", format)
    assert caught.value.reason == "no_tools"


@pytest.mark.parametrize("name", ["t.json.zst", "t.json.xz"])
def test_a_packing_that_is_not_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="not written"):
        Toolbox(TOOLS).write(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_toolbox_can_be_sent_to_another_process() -> None:
    toolbox = Toolbox(TOOLS)
    again = pickle.loads(pickle.dumps(toolbox))
    assert again == toolbox and again.by_name == toolbox.by_name
