from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from txagent_train.core.records import TOOL_RAG, Json, JsonObject, ToolCall
from txagent_train.demo.formulary import load_formulary, split_drugs
from txagent_train.demo.questions import FIELD_WORDS
from txagent_train.demo.tools import FIELD_TOOLS, SEARCH_TOOLS, TOOL_SPECS, DemoTools, retrieve_tools


@pytest.fixture(scope="module")
def tools() -> DemoTools:
    return DemoTools(load_formulary())


def content(tools: DemoTools, name: str, **arguments: Json) -> Json:
    outcome = tools.call(ToolCall(name, arguments))
    assert not outcome.is_error
    return outcome.content


def test_names_and_arguments_are_those_of_the_originals(shared_data: Callable[[str], Path]) -> None:
    listed = json.loads((shared_data("tooluniverse_v0") / "tools.json").read_text(encoding="utf-8"))
    originals: dict[str, JsonObject] = {tool["name"]: tool["parameter"]["properties"] for tool in listed}
    for spec in DemoTools(()).specs():
        arguments = originals[spec.name]
        assert spec.parameters["required"] == [name for name, schema in arguments.items() if schema["required"]]
        for name, schema in spec.parameters["properties"].items():
            assert schema["type"] == arguments[name]["type"]


def test_there_are_enough_tools(tools: DemoTools) -> None:
    assert len(TOOL_SPECS) >= 15
    assert [spec.name for spec in tools.specs()] == [TOOL_RAG, *(spec.name for spec in TOOL_SPECS)]


@pytest.mark.parametrize("tool", FIELD_TOOLS, ids=lambda tool: tool.field)
def test_a_lookup_gives_the_field_of_a_generic_name_only(tools: DemoTools, tool) -> None:
    for drug in load_formulary():
        found = content(tools, tool.name, drug_name=drug.generic_name.upper())
        assert found["results"][0]["generic_name"] == drug.generic_name
        assert found["results"][0][tool.key] == drug.text(tool.field)
        assert content(tools, tool.name, drug_name=drug.brand_names[0]) == {"results": []}


def test_the_generic_name_is_found_from_any_name(tools: DemoTools) -> None:
    for drug in load_formulary():
        for name in drug.names:
            found = content(tools, "get_drug_generic_name", drug_name=name)
            assert found == {"results": [{"generic_name": drug.generic_name}]}
    assert content(tools, "get_drug_generic_name", drug_name="lisinoprill") == {
        "results": [{"generic_name": "lisinopril"}]
    }
    assert content(tools, "get_drug_generic_name", drug_name="qqqqqq") == {"results": []}


@pytest.mark.parametrize("tool", SEARCH_TOOLS, ids=lambda tool: tool.field)
def test_a_search_finds_drugs_that_have_the_entry(tools: DemoTools, tool) -> None:
    by_name = {drug.generic_name: drug for drug in load_formulary()}
    for drug in load_formulary():
        for entry in drug.entries(tool.field):
            names = [item["generic_name"] for item in content(tools, tool.name, **{tool.argument: entry})["results"]]
            assert 1 <= len(names) <= 3 and names == sorted(names)
            assert all(entry in by_name[name].entries(tool.field) for name in names)


def test_a_search_takes_a_part_where_no_entry_is_equal(tools: DemoTools) -> None:
    name = "get_drug_names_by_indication"
    assert content(tools, name, indication="Fever") == {"results": [{"generic_name": "acetaminophen"}]}
    assert content(tools, name, indication="mediterranean") == {"results": [{"generic_name": "colchicine"}]}
    assert content(tools, name, indication="") == {"results": []}


def test_tools_know_only_their_own_drugs() -> None:
    train, held_out = split_drugs(0)
    tools = DemoTools(train)
    for drug in held_out:
        assert content(tools, FIELD_TOOLS[0].name, drug_name=drug.generic_name) == {"results": []}


@pytest.mark.parametrize("tool", FIELD_TOOLS, ids=lambda tool: tool.field)
def test_tool_rag_ranks_the_tool_of_a_requirement_first(tools: DemoTools, tool) -> None:
    outcome = tools.call(ToolCall(TOOL_RAG, {"description": FIELD_WORDS[tool.field].noun, "limit": 2}))
    assert outcome.content == [spec.name for spec in outcome.tools_added]
    assert len(outcome.tools_added) == 2
    assert outcome.tools_added[0].name == tool.name


def test_tool_rag_takes_any_limit() -> None:
    assert retrieve_tools("pregnancy", 0) == retrieve_tools("pregnancy", -1) == ()
    assert len(retrieve_tools("pregnancy", 99)) == len(TOOL_SPECS)


def test_a_wrong_call_is_an_error_result(tools: DemoTools) -> None:
    assert tools.call(ToolCall("get_price", {"drug_name": "lisinopril"})).is_error
    assert tools.call(ToolCall("get_route_info_by_drug_name", {"drug": "lisinopril"})).is_error
