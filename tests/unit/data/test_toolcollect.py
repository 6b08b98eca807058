from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.augmentation import GET_DOSE, TOOLS
from txagent_train.cli.app import app
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import TOOL_RAG, Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolcollect import collect_tools
from txagent_train.data.writing import jsonl_writer


def trace_of(name: str, *tools: ToolSpec, added: tuple[ToolSpec, ...] = ()) -> Trace:
    search = Step("I search.", calls=(ToolCall(TOOL_RAG, {}),), results=(ToolResult(0, []),), tools_added=added)
    return Trace(name, (UserMessage("What?"), search, Step("Done.")), answer="Yes.", initial_tools=tools)


def write(folder: Path, *traces: Trace) -> Path:
    with jsonl_writer(folder / "traces.jsonl", overwrite=True) as out:
        for trace in traces:
            out.write(trace_to_json(trace))
    return folder / "traces.jsonl"


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["tools", "collect", *words])


def test_every_tool_once_in_order_also_those_that_were_found(tmp_path: Path) -> None:
    source = write(tmp_path, trace_of("a", TOOLS[1]), trace_of("b", TOOLS[1], TOOLS[2], added=(TOOLS[0],)))
    result = run(str(source), "--out", str(tmp_path / "t.json"), "--json")
    report = json.loads(result.stdout)
    toolbox = Toolbox.read(tmp_path / "t.json")
    assert [tool.name for tool in toolbox.tools] == [TOOLS[1].name, TOOLS[2].name, TOOLS[0].name]
    assert (report["traces"], report["tools"], report["undeclared"]) == (2, 3, {TOOL_RAG: 2})
    assert toolbox.hash == Toolbox((TOOLS[1], TOOLS[2], TOOLS[0])).hash
    again = run(str(source), "--out", str(tmp_path / "t.json"))
    assert isinstance(again.exception, UserError)
    assert "3 tools of 2 traces" in run(str(source), "--out", str(tmp_path / "t.json"), "--overwrite").stdout


def test_a_tool_in_two_forms_is_an_error_or_counted(tmp_path: Path) -> None:
    other = replace(GET_DOSE, description="Another one.")
    source = write(tmp_path, trace_of("a", GET_DOSE), trace_of("b", other))
    with pytest.raises(DataError, match="get_dose has another description") as caught:
        collect_tools([source], tmp_path / "t.json")
    assert caught.value.line == 2 and not (tmp_path / "t.json").exists()
    report = collect_tools([source], tmp_path / "t.json", duplicates="first")
    assert report.unlike == {"get_dose": 1}
    assert Toolbox.read(tmp_path / "t.json").by_name["get_dose"].description == GET_DOSE.description


def test_traces_without_tools_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of the 1 traces brings a tool"):
        collect_tools([write(tmp_path, trace_of("a"))], tmp_path / "t.json")
