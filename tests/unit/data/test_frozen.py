from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.support.tiny_training import small_traces, write_traces
from tests.support.traces import traces
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.frozen import FrozenSet, freeze
from txagent_train.data.keys import folded, trace_keys


def _frozen(tmp_path: Path, *items: Trace) -> FrozenSet:
    path = tmp_path / "eval.frozen.json"
    FrozenSet.of(map(trace_keys, items), path=path, created_from={"file": "eval.jsonl"}).write()
    return FrozenSet.read(path)


def _trace(id: str, question: str, *, question_id: str = "", call: str = "") -> Trace:
    step = Step(calls=(ToolCall("get", {"drug": call or id}),), results=(ToolResult(0, "x"),))
    return Trace(id, (UserMessage(question), step, Step()), answer="Yes.", question_id=question_id, entities=("x",))


def test_what_is_in_the_set_is_known_by_its_question_or_its_id(tmp_path: Path) -> None:
    held = _trace("h", "Is it  safe?", question_id="q7", call="ibuprofen")
    frozen = _frozen(tmp_path, held)
    assert frozen.contains(held) == "its id"
    assert frozen.contains(_trace("h", "Another?")) == "its id"
    assert frozen.contains(_trace("a", "Another?", question_id="q7")) == "its question id"
    assert frozen.contains(_trace("a", "is it safe?")) == "its question"
    later = Trace("a", (UserMessage("Hello."), Step("Hi."), UserMessage("IS IT SAFE?"), Step("Yes.")))
    assert frozen.contains(later) == "its question"
    assert frozen.contains(_trace("a", "Is it safe for children?", question_id="q8")) is None
    assert frozen.contains(_trace("a", "\ufeffIs it sa\u00adfe\uff1f")) == "its question"
    assert frozen.contains(_trace("a", "Another?", question_id=" Q\uff17")) == "its question id"
    assert frozen.contains(_trace("h\u200b", "Another?")) == "its id"
    with pytest.raises(
        DataError, match=r"trace a: the trace is in the frozen evaluation set .*eval.frozen.json, by its"
    ):
        frozen.check(_trace("a", "Is it safe?"))


def test_a_shared_call_or_entity_is_told_apart(tmp_path: Path) -> None:
    frozen = _frozen(tmp_path, _trace("h", "Is it safe?", call="ibuprofen"))
    other = _trace("a", "What is the dose?", call="ibuprofen")
    assert frozen.contains(other) is None and frozen.shares_call(other)
    assert not frozen.shares_call(_trace("b", "What is the dose?"))


def test_traces_without_a_question_are_not_all_the_same(tmp_path: Path) -> None:
    silent = [Trace(id, (Step("Hello."),)) for id in "ab"]
    assert _frozen(tmp_path, silent[0]).contains(silent[1]) is None


@settings(max_examples=50, deadline=None)
@given(trace=traces())
def test_every_trace_is_in_its_own_set_and_the_file_holds_no_text(tmp_path_factory: object, trace: Trace) -> None:
    frozen = FrozenSet.of([trace_keys(trace)], path=Path("x"), created_from={})
    assert frozen.contains(trace) == "its id"
    by_question = frozen.contains(replace(trace, id="another"))
    assert by_question == ("its question" if folded(trace.question) else None)  # one without a visible letter is none
    assert all(len(key) == 64 for keys in frozen.keys.values() for key in keys)


def test_the_file_is_the_same_whatever_the_order_and_can_be_sent(tmp_path: Path) -> None:
    items = small_traces(5)
    written = []
    for order in (items, items[::-1]):
        frozen = _frozen(tmp_path, *order)
        written.append((tmp_path / "eval.frozen.json").read_bytes())
    assert written[0] == written[1]
    assert pickle.loads(pickle.dumps(frozen)).contains(items[0]) == "its id"


def test_an_edited_file_is_an_error(tmp_path: Path) -> None:
    _frozen(tmp_path, *small_traces(3))
    path = tmp_path / "eval.frozen.json"
    value = json.loads(path.read_text())
    edits = [
        (value | {"keys": value["keys"] | {"id": value["keys"]["id"][1:]}}, "was changed after it was made"),
        (value | {"keys": {key: item for key, item in value["keys"].items() if key != "call"}}, "was changed"),
        (value | {"hash": "0"}, "was changed after it was made"),
        (value | {"version": 9}, "version 9"),
        (value | {"version": 1}, "version 1"),
        ({"id": "t"}, "no frozen evaluation set"),
        ([], "no frozen evaluation set"),
        (value | {"keys": None}, "no frozen evaluation set"),
    ]
    for edited, match in edits:
        path.write_text(json.dumps(edited))
        with pytest.raises(DataError, match=match):
            FrozenSet.read(path)
    path.write_text('{"id": "a"}\n{"id": "b"}\n')
    with pytest.raises(DataError, match=r"no frozen evaluation set.*\n.*not the data itself"):
        FrozenSet.read(path)
    with pytest.raises(DataError, match="cannot be read"):
        FrozenSet.read(tmp_path / "absent.json")


def test_freezing_traces_made_elsewhere(tmp_path: Path) -> None:
    source = write_traces(tmp_path / "bench.jsonl", small_traces(3))
    out = tmp_path / "bench.frozen.json"
    made = freeze(source, out, format="native")
    assert made == FrozenSet.read(out)
    assert made.created_from["file"] == "bench.jsonl" and made.created_from["traces"] == 3
    assert all(made.contains(replace(trace, id="x")) == "its question" for trace in small_traces(3))
    with pytest.raises(UserError, match="exists already"):
        freeze(source, out, format="native")
    source.write_text(source.read_text() + "{}\n")
    with pytest.raises(DataError, match=r"bench.jsonl:4: a trace lacks the key"):
        freeze(source, out, format="native", overwrite=True)


def test_freezing_questions_without_traces(tmp_path: Path) -> None:
    rows = [
        {"id": "drug-1", "question": "Is it safe?", "options": {"A": "Yes"}, "correct_answer": "A"},
        {"question": "And in children?", "entities": ["ibuprofen"]},
    ]
    source = tmp_path / "bench.json"
    source.write_text(json.dumps(rows))
    frozen = freeze(source, tmp_path / "f.json", format="questions")
    assert frozen.contains(_trace("a", "is it SAFE?")) == "its question"
    assert frozen.contains(_trace("a", "Another?", question_id="drug-1")) == "its question id"
    assert frozen.contains(_trace("bench-2", "Another?")) is None, "a question without an id has none"
    for row, match in [({"id": 1}, "no question"), ({"question": "?", "entities": "x"}, "entities must be")]:
        source.write_text(json.dumps([row]))
        with pytest.raises(DataError, match=f"bench.json:1: .*{match}"):
            freeze(source, tmp_path / "g.json", format="questions")


def test_genegpt_runs_on_one_question_are_found(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    """Several runs of one question have ids of their own; holding out one must keep out all."""
    source = shared_data("genegpt/traces.jsonl.gz")
    frozen = freeze(source, tmp_path / "f.json", format="openai")
    assert frozen.created_from["traces"] == 1444 and len(frozen.keys["question"]) == 383
