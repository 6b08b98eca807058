from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.augmentation import GET_DOSE, TOOLBOX, TOOLS, rewrite_set, traces
from txagent_train.cli.app import app
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, EnvironmentFailure
from txagent_train.core.records import Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.checks import check_call
from txagent_train.data.loading import load_traces
from txagent_train.data.mentions import SPECIAL_TOOLS
from txagent_train.data.rewrites import RewriteSet
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.unseen import UnseenSplit
from txagent_train.data.virtual import RAG_TOOL
from txagent_train.data.writing import jsonl_writer

HELD_OUT = frozenset({"checkPair"})


def split(held_out: frozenset[str] = HELD_OUT) -> UnseenSplit:
    return UnseenSplit(TOOLBOX, rewrite_set(held_out_tools=held_out))


def trace_of(*calls: ToolCall, name: str = "t1") -> Trace:
    steps = [Step("I look.", calls=(call,), results=(ToolResult(0, {"dose": 1}),)) for call in calls]
    return Trace(name, (UserMessage("What?"), *steps, Step("Done.")), answer="Yes.", initial_tools=TOOLS)


DOSE = ToolCall("get_dose", {"drug_name": "aspirin", "limit": 1})
PAIR = ToolCall("checkPair", {"drugA": "aspirin", "drugB": "warfarin"})


def test_only_steps_that_call_a_held_out_tool_are_judged() -> None:
    sorter = split()
    mixed = trace_of(DOSE, PAIR)
    assert sorter.uses_held_out(mixed) and not sorter.uses_held_out(trace_of(DOSE))
    assert [step.train for step in sorter.judged(mixed).steps] == [False, True, False]


def test_a_trace_whose_steps_with_a_held_out_tool_are_not_trained_on_is_not_judged() -> None:
    trace = trace_of(PAIR)
    silent = replace(trace, turns=(trace.turns[0], replace(trace.steps[0], train=False), trace.turns[2]))
    with pytest.raises(DataError) as caught:
        split().judged(silent)
    assert caught.value.reason == "no_judged_step"


def test_no_set_but_its_own_shows_a_held_out_tool_under_its_name() -> None:
    sorter = split()
    found = Step("I look.", calls=(ToolCall("Tool_RAG", {"description": "x", "limit": 2}),),
                 results=(ToolResult(0, '["checkPair", "get_dose"]'),), tools_added=TOOLS[:1])  # fmt: skip
    trace = trace_of(DOSE)
    trace = replace(trace, turns=(trace.turns[0], found, *trace.turns[1:]), initial_tools=(RAG_TOOL, *TOOLS[1:]))
    sets = sorter.sets_of(trace)
    assert set(sets) == {"seen", "unseen_rewrites"}
    assert all("checkPair" not in json.dumps(trace_to_json(made)) for made in sets.values())
    assert sets["seen"].steps[1:] == trace.steps[1:]


@pytest.mark.parametrize("said", ["checkPair would do.", "`CheckPair`"])
def test_a_trace_that_names_a_held_out_tool_and_calls_none_is_in_no_set(said: str) -> None:
    trace = trace_of(DOSE)
    naming = replace(trace, turns=(trace.turns[0], replace(trace.steps[0], thought=said), trace.turns[2]))
    assert not split().uses_held_out(naming)
    with pytest.raises(DataError) as caught:
        split().sets_of(naming)
    assert caught.value.reason == "held_out_tool"


@given(trace=traces(), seed=st.integers(0, 5))
def test_rewritten_traces_show_every_tool_they_call_in_a_held_out_version(trace: Trace, seed: int) -> None:
    sorter = UnseenSplit(TOOLBOX, rewrite_set(), seed)
    out = sorter.rewritten(trace)
    called = {call.name for step in trace.steps for call in step.calls} - SPECIAL_TOOLS
    if out is None:
        assert called
        return
    held_out = {rewrite.name for versions in rewrite_set().by_tool.values() for rewrite in versions if rewrite.held_out}
    now = {call.name for step in out.steps for call in step.calls} - SPECIAL_TOOLS
    assert now <= held_out and len(now) == len(called)
    specs = {spec.name: spec for spec in out.tools()}
    old = {spec.name: spec for spec in trace.tools()}
    for before, after in zip(trace.steps, out.steps, strict=True):
        for was, call in zip(before.calls, after.calls, strict=True):
            try:
                check_call(was, old)
            except DataError:
                continue
            check_call(call, specs)
    assert out.id == f"{trace.id}-rewritten"


def test_a_tool_that_the_question_names_is_in_no_unseen_words_and_counted() -> None:
    sorter = split()
    named = replace(trace_of(DOSE), turns=(UserMessage("Use get_dose."), *trace_of(DOSE).turns[1:]))
    assert sorter.rewritten(named) is None and sorter.counts["tool_not_rewritten"] == 1
    assert sorter.rewritten(trace_of(DOSE)) is not None


def test_what_holds_nothing_out_and_what_is_of_another_toolbox_is_refused() -> None:
    kept = {
        tool: tuple(replace(rewrite, held_out=False) for rewrite in versions)
        for tool, versions in rewrite_set().by_tool.items()
    }
    with pytest.raises(DataError, match="hold out neither"):
        UnseenSplit(TOOLBOX, RewriteSet(TOOLBOX.hash, frozenset(), kept))
    with pytest.raises(DataError, match="another toolbox"):
        UnseenSplit(Toolbox((GET_DOSE,)), rewrite_set())


def run(folder: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["tools", "unseen", *words, "--toolbox", str(folder / "tools.json"),
                                    "--rewrites", str(folder / "rewrites.jsonl")])  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TOOLBOX.write(tmp_path / "tools.json")
    rewrite_set(held_out_tools=HELD_OUT).write(tmp_path / "rewrites.jsonl")
    return tmp_path


def write(folder: Path, *items: Trace) -> str:
    with jsonl_writer(folder / "heldout.jsonl") as out:
        for trace in items:
            out.write(trace_to_json(trace))
    return str(folder / "heldout.jsonl")


def test_every_trace_is_in_a_set_or_named_with_a_reason(folder: Path) -> None:
    stranger = ToolCall("unknown_tool", {})
    source = write(folder, trace_of(DOSE, name="a"), trace_of(PAIR, DOSE, name="b"), trace_of(stranger, name="c"))
    result = run(folder, source, "--out", str(folder / "sets"), "--json")
    report = json.loads(result.stdout)
    assert report["traces"] == {"seen": 1, "unseen_rewrites": 1, "unseen_tools": 1} and report["read"] == 3
    assert report["steps"] == {"seen": 2, "unseen_rewrites": 2, "unseen_tools": 1}
    assert sum(report["dropped"].values()) == 1 and "unknown_tool" in Path(report["dropped_file"]).read_text()
    ids = {name: [trace.id for trace in load_traces(Path(path))] for name, path in report["files"].items()}
    assert ids == {"seen": ["a"], "unseen_rewrites": ["a-rewritten"], "unseen_tools": ["b"]}
    again = run(folder, source, "--out", str(folder / "sets"))
    assert "exists already" in str(again.exception)
    shown = run(folder, source, "--out", str(folder / "sets"), "--overwrite").stdout
    assert "unseen_rewrites" in shown and "left out of all" in shown


def test_a_set_without_traces_has_no_file(folder: Path) -> None:
    report = json.loads(run(folder, write(folder, trace_of(DOSE)), "--out", str(folder / "sets"), "--json").stdout)
    assert set(report["files"]) == {"seen", "unseen_rewrites"} and report["dropped_file"] is None
    assert sorted(path.name for path in (folder / "sets").iterdir()) == ["seen.jsonl", "unseen_rewrites.jsonl"]


def test_a_file_with_nothing_to_sort_writes_nothing(folder: Path) -> None:
    result = run(folder, write(folder, trace_of(ToolCall("unknown_tool", {}))), "--out", str(folder / "sets"))
    assert isinstance(result.exception, DataError) and not list((folder / "sets").glob("*.jsonl"))


def test_files_that_are_there_stay_until_all_new_ones_are_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(
        folder, trace_of(DOSE, name="a"), trace_of(PAIR, name="b"), trace_of(ToolCall("no_such", {}), name="c")
    )
    assert run(folder, source, "--out", str(folder / "sets")).exit_code == 0
    old = {path.name: path.read_bytes() for path in (folder / "sets").iterdir()}
    assert set(old) == {"seen.jsonl", "unseen_rewrites.jsonl", "unseen_tools.jsonl", "dropped.jsonl"}
    synced: list[int] = []

    def full(stream: int) -> None:
        synced.append(stream)
        if len(synced) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    (folder / "heldout.jsonl").unlink()
    source = write(folder, trace_of(DOSE, name="other"), trace_of(PAIR, name="more"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        failed = run(folder, source, "--out", str(folder / "sets"), "--overwrite")
    assert isinstance(failed.exception, EnvironmentFailure)
    assert {path.name: path.read_bytes() for path in (folder / "sets").iterdir()} == old
    assert run(folder, source, "--out", str(folder / "sets"), "--overwrite").exit_code == 0
    assert not (folder / "sets" / "dropped.jsonl").exists(), "nothing was dropped this time"
