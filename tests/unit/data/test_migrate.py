from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.openai_records import write_lines
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.loading import load_traces
from txagent_train.data.migrate import Migrator, migrate_traces, read_name_map
from txagent_train.data.toolbox import Toolbox

OLD_RAG = ToolSpec(TOOL_RAG, "Find tools.", {"type": "object", "properties": {}})


def _tool(name: str, *required: str, **more: Any) -> ToolSpec:
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in required}, "required": [*required]}
    return ToolSpec(name, f"What {name} does.", schema, **more)


NEW = Toolbox(
    (
        _tool("FDA_get_dose", "drug", origin={"format": "tooluniverse_v1", "derived": [], "item": {"label": 1}}),
        _tool("FDA_get_name", "dose"),
        _tool("FDA_get_use"),
        replace(OLD_RAG, description="Find tools, anew."),
    )
)
NAMES = {"get_dose": "FDA_get_dose", "get_name": "FDA_get_name", "get_use": "FDA_get_use", "get_gone": None}


def _trace(*calls: ToolCall, found: Any = ("get_name", "get_gone", "get_use"), added: str = "get_name") -> Trace:
    """Searches for tools first, then makes each call."""
    search = Step(
        "I look for what get_dose and my_get_dose lack.",
        calls=(ToolCall(TOOL_RAG, {"description": "like get_dose"}),),
        results=(ToolResult(0, list(found) if isinstance(found, tuple) else found),),
        tools_added=(_tool(added), _tool("get_gone")),
    )
    steps = tuple(Step("Now.", calls=(call,), results=(ToolResult(0, {"v": "get_dose 5"}),)) for call in calls)
    return Trace(
        id="t",
        turns=(UserMessage("Which dose?"), search, *steps, Step("Done.")),
        answer="5 mg.",
        initial_tools=(_tool("get_dose", "name"), OLD_RAG, _tool("get_gone")),
    )


DOSE = ToolCall("get_dose", {"drug": "ibuprofen"})


def test_names_and_specs_change_everywhere() -> None:
    migrator = Migrator(NEW, NAMES)
    out = migrator.migrate(_trace(DOSE, ToolCall("get_name", {"name": "x"})))
    search, dose, name, _ = out.steps
    assert [spec.name for spec in out.initial_tools] == ["FDA_get_dose", TOOL_RAG]
    assert out.initial_tools[0].parameters == NEW.tools[0].parameters and out.initial_tools[0].origin == {}
    assert out.initial_tools[1].description == "Find tools, anew."
    assert search.results[0].content == ["FDA_get_name", "FDA_get_use"]
    assert [spec.name for spec in search.tools_added] == ["FDA_get_name"]
    assert search.thought == "I look for what FDA_get_dose and my_get_dose lack."
    assert search.calls[0].arguments == {"description": "like FDA_get_dose"}
    assert (dose.calls[0].name, dose.calls[0].arguments) == ("FDA_get_dose", DOSE.arguments)
    assert dose.results[0].content == {"v": "get_dose 5"}, "what a tool says of the world stays"
    assert name.calls[0].name == "FDA_get_name"
    assert migrator.calls == 2 and migrator.invalid_arguments == {"FDA_get_name": 1}
    assert migrator.unmapped == {"get_gone": 1} and "no counterpart" in migrator.why["get_gone"]


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ('["get_name", "get_gone"]', '["FDA_get_name"]'),
        ([{"name": "get_gone", "score": 1}, {"name": "get_name"}], [{"name": "FDA_get_name"}]),
        ({"tools": ["get_gone", "get_name"], "n": 2}, {"tools": ["FDA_get_name"], "n": 2}),
        ("none found", "none found"),
        ([["get_gone"], "not_a_tool"], [[], "not_a_tool"]),
    ],
)
def test_results_of_tool_rag_are_changed_by_structure(found: Any, kept: Any) -> None:
    assert Migrator(NEW, NAMES).migrate(_trace(DOSE, found=found)).steps[0].results[0].content == kept


def test_a_call_without_counterpart() -> None:
    trace = _trace(DOSE, ToolCall("get_gone", {}))
    with pytest.raises(DataError, match="calls get_gone: the map has no counterpart") as fault:
        Migrator(NEW, NAMES).migrate(trace)
    assert fault.value.reason == "unmapped_tool" and fault.value.trace_id == "t"
    with pytest.raises(DataError, match="lists get_gone"):
        Migrator(NEW, NAMES, "error").migrate(_trace(DOSE))
    kept = Migrator(NEW, NAMES, "keep").migrate(trace)
    assert kept.steps[2].calls[0].name == "get_gone" and kept.steps[0].results[0].content[1] == "get_gone"  # type: ignore[index]
    assert [spec.name for spec in kept.initial_tools] == ["FDA_get_dose", TOOL_RAG, "get_gone"]


def test_why_a_tool_has_no_counterpart() -> None:
    migrator = Migrator(NEW, {"get_dose": "FDA_get_dose", "get_name": "FDA_missing"}, "keep")
    migrator.migrate(_trace(DOSE, added="get_more"))
    assert migrator.why == {
        "get_name": "its counterpart FDA_missing is not in the toolbox",
        "get_more": "the map does not name it",
        "get_gone": "the map does not name it",
    }
    assert migrator.unmapped == {"get_name": 1, "get_more": 1, "get_gone": 1}


def test_a_name_that_is_in_the_toolbox_already_gets_its_spec() -> None:
    migrator = Migrator(NEW, NAMES)
    out = migrator.migrate(_trace(ToolCall("FDA_get_use", {}), found=("get_name",)))
    assert out.steps[1].calls[0].name == "FDA_get_use" and migrator.calls == 1 and not migrator.invalid_arguments


def test_nested_traces_are_migrated_too() -> None:
    inner = replace(_trace(DOSE), id="inner")
    agent = ToolSpec("CallAgent", "Let an agent do it.", {"type": "object", "properties": {}})
    step = Step("Ask.", calls=(ToolCall("CallAgent", {}),), results=(ToolResult(0, "5", sub_trace=inner),))
    trace = Trace("t", (UserMessage("?"), step, Step("Done.")), answer="5", initial_tools=(agent,))
    nested = Migrator(NEW, NAMES).migrate(trace).steps[0].results[0].sub_trace
    assert nested is not None and nested.steps[1].calls[0].name == "FDA_get_dose"


# ---- maps and files ----


def _map(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "map.json"
    path.write_text(json.dumps(value))
    return path


def test_maps(tmp_path: Path) -> None:
    rows = [{"old_name": old, "new_name": new, "evidence": "x"} for old, new in NAMES.items()]
    assert read_name_map(_map(tmp_path, rows), "v1") == read_name_map(_map(tmp_path, NAMES), "v1") == NAMES
    back = {new: old for old, new in NAMES.items() if new is not None}
    assert read_name_map(_map(tmp_path, rows), "v0") == back
    for faulty in ([{"old": "a"}], ["a"], 5, {"a": 5}, [{"old_name": None, "new_name": "b"}]):
        with pytest.raises(DataError, match="no map of names"):
            read_name_map(_map(tmp_path, faulty), "v1")
    merged = {"a": "c", "b": "c"}
    assert read_name_map(_map(tmp_path, merged), "v1") == merged
    with pytest.raises(DataError, match="c would become both a and b"):
        read_name_map(_map(tmp_path, merged), "v0")


def test_two_tools_that_become_one_are_a_fault() -> None:
    trace = replace(_trace(DOSE), initial_tools=(_tool("get_dose"), _tool("get_amount")))
    with pytest.raises(DataError, match="FDA_get_dose is declared twice"):
        Migrator(NEW, {**NAMES, "get_amount": "FDA_get_dose"}).migrate(trace)


def test_a_file(tmp_path: Path) -> None:
    lost = replace(_trace(ToolCall("get_gone", {})), id="lost")
    source = write_lines(tmp_path / "in.jsonl", [trace_to_json(_trace(DOSE)), trace_to_json(lost), {"id": "x"}])
    names = _map(tmp_path, NAMES)
    out = tmp_path / "out.jsonl"
    report = migrate_traces(source, out, names=names, to="v1", toolbox=NEW, format="native")
    assert (report.read, report.accepted, report.dropped) == (3, 1, {"unmapped_tool": 1, "missing_key": 1})
    assert report.unmapped == {"get_gone": 2} and report.why.keys() == {"get_gone"} and report.calls == 1
    dropped = [json.loads(line) for line in Path(str(report.dropped_file)).read_text().splitlines()]
    assert [(line["line"], line["id"]) for line in dropped] == [(2, "lost"), (3, "x")]
    assert [trace.id for trace in load_traces(out)] == ["t"]
    with pytest.raises(DataError, match=r"in\.jsonl:1.*lists get_gone"):
        migrate_traces(
            source, tmp_path / "e.jsonl", names=names, to="v1", toolbox=NEW, unmapped="error", format="native"
        )
    assert not (tmp_path / "e.jsonl").exists()


def test_real_names_there_and_back(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    old = Toolbox.read(shared_data("tooluniverse_v0/tools.json"))
    names = shared_data("tooluniverse_v1/name_map.json")
    there, back = read_name_map(names, "v1"), read_name_map(names, "v0")
    assert len(there) == 214 and len(back) == 211
    # The specs under their new names, for the pack holds only some of the real ones.
    new = Toolbox(tuple(replace(tool, name=there[tool.name]) for tool in old.tools if there[tool.name] is not None))  # type: ignore[arg-type]
    tools = [tool for tool in old.tools if there[tool.name] is not None and tool.name not in ("Finish", TOOL_RAG)]
    for number, tool in enumerate(tools):
        shown = (replace(tools[number - 1], origin={}), replace(tool, origin={}))
        step = Step(
            f"I call {tool.name}.",
            calls=(ToolCall(TOOL_RAG, {}), ToolCall(tool.name, {})),
            results=(ToolResult(0, [tool.name]), ToolResult(1, "x")),
        )
        trace = Trace(f"t{number}", (UserMessage("?"), step, Step()), answer="a", initial_tools=shown)
        moved = Migrator(new, there, "error").migrate(trace)
        called = moved.steps[0].calls[1].name
        assert called == there[tool.name] and moved.steps[0].results[0].content == [called]
        assert [spec.name for spec in moved.initial_tools] == [there[spec.name] for spec in shown]
        assert Migrator(old, back, "error").migrate(moved) == trace
