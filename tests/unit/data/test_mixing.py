from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_training import small_traces, write_traces
from txagent_train.config.sft import DataSection
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, Trace, UserMessage
from txagent_train.data.frozen import FrozenSet
from txagent_train.data.keys import trace_keys
from txagent_train.data.mixing import Guards, source_labels, source_traces
from txagent_train.data.reading import Wanted, every_record


def _data(source: Path, *, kind: str = "trace", format: str = "auto", **section: Any) -> DataSection:
    sources = [{"path": str(source), "kind": kind, "format": format}]
    return DataSection.model_validate({"sources": sources} | section)


def _read(
    data: DataSection, *, training: bool = True, wanted: Wanted = every_record
) -> tuple[list[tuple[int, Trace]], list[DataError]]:
    dropped: list[DataError] = []
    guards: Guards = pickle.loads(pickle.dumps(Guards.of(data)))
    traces = source_traces(
        data.sources[0], data, training=training, guards=guards, on_drop=dropped.append, wanted=wanted
    )
    return list(traces), dropped


def _rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


CHAT = Trace("c", (UserMessage("Hello?"), Step("Hi."), UserMessage("More?"), Step("Sure.")))


def test_traces_come_as_they_are(tmp_path: Path) -> None:
    traces = small_traces(3)
    found, dropped = _read(_data(write_traces(tmp_path / "t.jsonl", traces)))
    assert found == list(enumerate(traces, 1)) and not dropped


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("qa", {"question": "Q?", "answer": "A."}),
        ("summary", {"text": "T", "summary": "S"}),
        ("qa", {"messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "A."}]}),
        ("chat", {"messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "A."}]}),
        ("chat", {"conversations": [{"from": "human", "value": "Q?"}, {"from": "gpt", "value": "A."}]}),
    ],
)
def test_general_data_comes_as_chat_in_any_form(tmp_path: Path, kind: str, row: dict[str, Any]) -> None:
    ((line, trace),), _ = _read(_data(_rows(tmp_path / "g.jsonl", row), kind=kind))
    assert line == 1 and trace.answer is None and len(trace.turns) == 2
    assert isinstance(trace.turns[1], Step) and trace.turns[1].thought in ("A.", "S")


@pytest.mark.parametrize("kind", ["chat", "qa", "summary"])
def test_native_chat_with_several_turns(tmp_path: Path, kind: str) -> None:
    path = write_traces(tmp_path / "c.jsonl", [CHAT, replace(CHAT, id="d", answer="Really.")])
    for format in ("auto", "native"):
        ((_, first), (_, second)), _ = _read(_data(path, kind=kind, format=format))
        assert first == CHAT
        assert second.answer is None and second.steps[-1].thought == "Sure.\n\nReally."


def test_the_other_kind_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    path = write_traces(tmp_path / "t.jsonl", [small_traces(1)[0], CHAT])
    with pytest.raises(DataError, match=r"t.jsonl:2, trace c: .*plain chat\n.*set kind: chat") as caught:
        _read(_data(path))
    assert caught.value.reason == "other_kind"
    with pytest.raises(DataError, match=r"t.jsonl:1, trace trace-0: .*no chat\n.*set kind: trace"):
        _read(_data(path, kind="chat"))


def test_faulty_rows_and_empty_files_name_the_place(tmp_path: Path) -> None:
    path = _rows(tmp_path / "q.jsonl", {"question": "Q?", "answer": "A."}, {"question": "Q?"})
    with pytest.raises(DataError, match=r"q.jsonl:2: the row has no answer"):
        _read(_data(path, kind="qa"))
    path.write_text("\n")
    with pytest.raises(DataError, match=r"q.jsonl.*no records"):
        _read(_data(path, kind="qa"))


@pytest.mark.parametrize(
    ("kind", "row"), [("qa", {"question": "Q?", "answer": "A."}), ("summary", {"text": "T", "summary": "S"})]
)
def test_rows_with_the_same_id_are_an_error(tmp_path: Path, kind: str, row: dict[str, Any]) -> None:
    rows = [{**row, "id": name} for name in ("a", "b", "a")]
    with pytest.raises(DataError, match=r"r.jsonl:3, trace a: another row .* same id\n.*in line 1") as caught:
        _read(_data(_rows(tmp_path / "r.jsonl", *rows), kind=kind))
    assert caught.value.reason == "duplicate_id"


def test_only_wanted_lines_are_parsed(tmp_path: Path) -> None:
    rows = [{"question": f"Q{n}?", "answer": "A."} for n in range(4)]
    path = _rows(tmp_path / "q.jsonl", *rows, {"faulty": 1})
    found, _ = _read(_data(path, kind="qa"), wanted=lambda line: line in (1, 4))
    assert [line for line, _ in found] == [1, 4]


def test_what_is_dropped_is_told_where_its_line_is_wanted(tmp_path: Path) -> None:
    cut = [replace(trace, answer=None) for trace in small_traces(6)]
    data = _data(write_traces(tmp_path / "t.jsonl", cut), incomplete="drop")
    dropped = [_read(data, wanted=lambda line, rest=rest: line % 2 == rest)[1] for rest in (0, 1)]
    assert [[fault.line for fault in part] for part in dropped] == [[2, 4, 6], [1, 3, 5]]


def test_excluded_traces_are_dropped_from_training_and_named(tmp_path: Path) -> None:
    path = write_traces(tmp_path / "t.jsonl", small_traces(4))
    listed = tmp_path / "excluded.txt"
    listed.write_text("drug 2\n")
    data = _data(path, exclude=[str(listed)])
    found, (fault,) = _read(data)
    assert [trace.id for _, trace in found] == ["trace-0", "trace-1", "trace-3"]
    assert (fault.reason, fault.path, fault.line, fault.trace_id) == ("excluded_entity", str(path), 3, "trace-2")
    assert "'drug 2'" in fault.problem
    assert len(_read(data, training=False)[0]) == 4


def test_a_frozen_trace_stops_training(tmp_path: Path) -> None:
    traces = small_traces(4)
    path = write_traces(tmp_path / "t.jsonl", traces)
    frozen = tmp_path / "held.frozen.json"
    FrozenSet.of([trace_keys(replace(traces[2], id="h"))], path=frozen, created_from={}).write()
    data = _data(path, frozen=[str(frozen)])
    with pytest.raises(
        DataError, match=r"t.jsonl:3, trace trace-2: .*held.frozen.json, by its question\n.*take it out"
    ):
        _read(data)
    assert len(_read(data, training=False)[0]) == 4
    # What is left out anyway need not be unfrozen.
    listed = tmp_path / "excluded.txt"
    listed.write_text("drug 2\n")
    assert len(_read(_data(path, frozen=[str(frozen)], exclude=[str(listed)]))[0]) == 3


def test_a_shared_call_is_known_and_trained_on(tmp_path: Path) -> None:
    traces = small_traces(3)
    path = write_traces(tmp_path / "t.jsonl", traces)
    held = replace(traces[1], id="h", turns=(UserMessage("Another?"), *traces[1].turns[1:]))
    frozen = tmp_path / "held.frozen.json"
    FrozenSet.of([trace_keys(held)], path=frozen, created_from={}).write()
    data = _data(path, frozen=[str(frozen)])
    assert len(_read(data)[0]) == 3
    assert [Guards.of(data).shares_call(trace) for trace in traces] == [False, True, False]


def test_the_fingerprint_follows_the_contents(tmp_path: Path) -> None:
    path, listed = write_traces(tmp_path / "t.jsonl", small_traces(1)), tmp_path / "excluded.txt"
    prints = []
    for text in ("a\n", "b\n", "a\n"):
        listed.write_text(text)
        prints.append(Guards.of(_data(path, exclude=[str(listed)])).fingerprint)
    assert prints[0] == prints[2] != prints[1]


def test_labels_are_short_and_unique() -> None:
    assert source_labels(["/d/a/train.jsonl", "/d/b/train.jsonl", "/d/qa.jsonl"]) == (
        "a/train.jsonl",
        "b/train.jsonl",
        "qa.jsonl",
    )
    assert source_labels(["even", "odd"]) == ("even", "odd")


@given(st.sets(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join), min_size=1, max_size=6))
def test_labels_tell_all_paths_apart(paths: set[str]) -> None:
    ordered = sorted(paths)
    labels = source_labels(ordered)
    assert len(set(labels)) == len(paths)
    assert all(path.endswith(label) for path, label in zip(ordered, labels, strict=True))


def test_glaive_is_of_both_kinds(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("sharegpt/glaive_toolcall_en.json")
    with pytest.raises(DataError, match="set kind: chat"):
        _read(_data(path, incomplete="drop", invalid_calls="keep"))
    with pytest.raises(DataError, match="set kind: trace"):
        _read(_data(path, kind="chat", incomplete="drop", invalid_calls="keep"))
