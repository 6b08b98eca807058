from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.openai_records import assistant, call, record, tool, user, write_lines
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import Trace
from txagent_train.data.importing import ImportReport, dropped_path, import_traces
from txagent_train.data.loading import load_numbered, load_traces
from txagent_train.data.mixing import of_kind
from txagent_train.data.reading import read_jsonl

UNDECLARED = [user(), assistant(None, call("order_blood_test")), tool(), assistant("Done.")]
CUT_SHORT = [user(), assistant(None, call()), tool(), assistant(None, call()), tool()]

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "arguments not json": (
        record("bad", [user(), assistant(None, call(arguments="{")), tool(), assistant("a")]),
        "arguments_not_json",
    ),
    "undeclared tool": (record("bad", UNDECLARED), "undeclared_tool"),
    "missing argument": (
        record("bad", [user(), assistant(None, call(arguments="{}")), tool(), assistant("a")]),
        "invalid_arguments",
    ),
    "response without call": (
        record("bad", [user(), assistant(None, call()), tool(), tool(id="c9"), assistant("a")]),
        "result_without_call",
    ),
    "call without response": (
        record("bad", [user(), assistant(None, call()), assistant(None, call(id="c2")), tool(id="c2"), assistant("a")]),
        "call_without_result",
    ),
    "duplicate call id": (
        record("bad", [user(), assistant(None, call(), call()), tool(), tool(), assistant("a")]),
        "duplicate_call_id",
    ),
    "empty": (record("bad", []), "empty_trace"),
    "no final answer": (record("bad", CUT_SHORT), "incomplete"),
    "ends with the user": (record("bad", [user(), assistant("Anything else?"), user("No.")]), "incomplete"),
    "unknown role": (record("bad", [user(), {"role": "observer", "content": "x"}, assistant("a")]), "unknown_role"),
    "null final content": (record("bad", [user(), assistant(None)]), "empty_answer"),
    "half a character": (record("bad", [user("\ud83d?"), assistant("a")]), "lone_surrogate"),
    "the name Finish": (
        record("bad", [user(), assistant(None, call("Finish", "{}")), tool(), assistant("a")]),
        "reserved_tool_name",
    ),
    "id twice": (record("first"), "duplicate_id"),
}


def _import(path: Path, **options: Any) -> ImportReport:
    return import_traces(path, path.with_name("out.jsonl"), format="openai", **options)


@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_record_is_left_out_counted_and_named(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("first"), bad, record("last")])
    report = _import(source)
    assert (report.read, report.accepted, report.dropped) == (3, 2, {reason: 1})
    assert [trace.id for trace in load_traces(tmp_path / "out.jsonl")] == ["first", "last"]
    ((_, row),) = read_jsonl(dropped_path(tmp_path / "out.jsonl"))
    assert (row["file"], row["line"], row["id"], row["reason"]) == (str(source), 2, bad["id"], reason)
    assert row["problem"]


@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD.keys())
def test_training_stops_at_a_bad_record(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("first"), bad])
    with pytest.raises(DataError) as caught:
        list(load_traces(source, "openai"))
    assert (caught.value.reason, caught.value.line, caught.value.trace_id) == (reason, 2, bad["id"])
    assert f"{source}:2, trace {bad['id']}" in str(caught.value).encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    "content",
    [
        "".join(json.dumps(record(f"t{n}")) + "\n" for n in range(3)).encode()[:-40],
        "".join(json.dumps(record(f"t{n}")) + "\n" for n in range(3)).encode("utf-16"),
        json.dumps(record()).encode() + b'\n{"id": "x", "id": "y"}\n',
        b"",
        b"\n\n",
    ],
    ids=["torn", "utf-16", "key twice", "empty", "blank"],
)
def test_nothing_is_written_of_a_file_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(content)
    with pytest.raises(DataError, match=r"in\.jsonl"):
        _import(source)
    assert list(tmp_path.iterdir()) == [source]


def test_policies(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("good"), record("call", UNDECLARED), record("cut", CUT_SHORT)])
    assert _import(source, incomplete="steps", invalid_calls="keep").accepted == 3
    assert _import(source, incomplete="steps", overwrite=True).dropped == {"undeclared_tool": 1}
    assert _import(source, overwrite=True).dropped == {"incomplete": 1, "undeclared_tool": 1}
    with pytest.raises(DataError, match=r"in\.jsonl:2, trace call, step 0"):
        _import(source, invalid_calls="error", overwrite=True)
    with pytest.raises(DataError, match=r"in\.jsonl:3, trace cut, step 1: the trace ends with a call"):
        _import(source, incomplete="error", overwrite=True)


def test_a_side_file_of_an_earlier_import_does_not_stay(tmp_path: Path) -> None:
    bad = write_lines(tmp_path / "bad.jsonl", [record("a"), record("b", [])])
    assert _import(bad).dropped_file == str(dropped_path(tmp_path / "out.jsonl"))
    assert _import(write_lines(tmp_path / "good.jsonl", [record("a")]), overwrite=True).dropped_file is None
    assert not dropped_path(tmp_path / "out.jsonl").exists()


def test_an_existing_file_is_refused_before_reading(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record()])
    _import(source)
    with pytest.raises(UserError, match="exists already"):
        _import(source)


def test_an_import_that_accepts_nothing_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("a", CUT_SHORT), record("b", CUT_SHORT), record("c", [])])
    out = tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"none of the 3 .*\n  2 incomplete: .*--incomplete steps.*\n  1 empty_trace\n"):
        _import(source)
    assert not out.exists() and len(list(read_jsonl(dropped_path(out)))) == 3
    _import(source, overwrite=True, incomplete="steps")
    with pytest.raises(DataError, match="none of the 3"):
        _import(source, overwrite=True)
    assert len(list(read_jsonl(out))) == 2  # what was there stays


def test_a_side_file_that_is_not_its_own_is_not_touched(tmp_path: Path) -> None:
    side = dropped_path(tmp_path / "out.jsonl")
    side.write_text("mine")
    with pytest.raises(UserError, match=r"out\.jsonl\.dropped\.jsonl: the file exists already"):
        _import(write_lines(tmp_path / "in.jsonl", [record("a")]))
    assert side.read_text() == "mine" and not (tmp_path / "out.jsonl").exists()


def test_traces_come_with_their_lines(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("a"), record("call", UNDECLARED), record("b")])
    assert _import(source).fixes.keys() == {"undeclared_tool"}
    numbered = load_numbered(source, "openai", invalid_calls="drop", on_drop=lambda _: None)
    assert [(line, trace.id) for line, trace in numbered] == [(1, "a"), (3, "b")]


def test_native_in_native_out(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("a"), record("b", CUT_SHORT)])
    _import(source, incomplete="steps")
    again = tmp_path / "again.jsonl.gz"
    import_traces(tmp_path / "out.jsonl", again, format="native", incomplete="steps")
    assert list(load_traces(again)) == list(load_traces(tmp_path / "out.jsonl"))


def test_training_may_drop_incomplete_traces_or_train_on_their_steps(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("good"), record("cut", CUT_SHORT)])
    dropped: list[DataError] = []
    assert [t.id for t in load_traces(source, "openai", incomplete="drop", on_drop=dropped.append)] == ["good"]
    assert [(error.trace_id, error.reason, error.line) for error in dropped] == [("cut", "incomplete", 2)]
    assert len(list(load_traces(source, "openai", incomplete="steps"))) == 2
    # What an import kept on purpose is no error, but may be dropped.
    _import(source, incomplete="steps")
    native = tmp_path / "out.jsonl"
    assert len(list(load_traces(native))) == 2
    assert len(list(load_traces(native, incomplete="drop", on_drop=dropped.append))) == 1


def test_formats_are_guessed_also_for_training(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("a"), {"messages": [user(), assistant("Hi.")]}])
    report = import_traces(source, tmp_path / "out.jsonl")
    assert (report.format, report.guessed, report.kinds) == ("openai", True, {"trace": 1, "chat": 1})
    assert [trace.id for trace in load_traces(source, "auto")] == ["a", "in-2"]
    assert [trace.id for trace in load_traces(tmp_path / "out.jsonl", "auto")] == ["a"]


def test_each_kind_has_its_file(tmp_path: Path) -> None:
    talk = {"messages": [user(), assistant("Hi.")]}
    out, chat = tmp_path / "out.jsonl.gz", tmp_path / "out.chat.jsonl.gz"
    report = import_traces(write_lines(tmp_path / "in.jsonl", [talk, record("a"), talk]), out)
    assert (report.chat_out, report.kinds) == (str(chat), {"trace": 1, "chat": 2})
    for path, kind, ids in ((out, "trace", ["a"]), (chat, "chat", ["in-1", "in-3"])):
        assert [of_kind(trace, kind).id for trace in load_traces(path)] == ids
    for records, kinds in (([talk], {"trace": 0, "chat": 1}), ([record("b")], {"trace": 1, "chat": 0})):
        report = import_traces(write_lines(tmp_path / "in.jsonl", records), out, overwrite=True)
        assert (report.chat_out, report.kinds, chat.exists()) == (None, kinds, False)
        assert len(list(load_traces(out))) == 1


def test_after_an_import_that_accepted_nothing_the_next_one_runs(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("cut", CUT_SHORT)])
    with pytest.raises(DataError, match="read as openai"):
        _import(source)
    assert not (tmp_path / "out.chat.jsonl").exists()
    assert _import(source, incomplete="steps").accepted == 1
    with pytest.raises(UserError, match="exists already"):
        _import(source, incomplete="steps")


def test_text_behind_calls_is_told(tmp_path: Path) -> None:
    text = 'Look.\n<tool_call>\n{"name": "list_drugs", "arguments": {}}\n</tool_call>\nI made that up.'
    messages = [user(), assistant(text), {"role": "tool", "content": "x"}, assistant("Done.")]
    report = import_traces(write_lines(tmp_path / "in.jsonl", [record("a", messages)]), tmp_path / "out.jsonl")
    assert report.format == "athena" and "1 records have text that only raw_output keeps" in report.notes[0]


def test_any_depth_is_a_counted_drop(tmp_path: Path) -> None:
    deep = '{"a": ' * 700 + "1" + "}" * 700
    bad = json.dumps(record("bad", [user(), assistant(None, call(arguments="DEEP")), tool(), assistant("a")]))
    source = tmp_path / "in.jsonl"
    source.write_text(bad.replace('"DEEP"', deep) + "\n" + json.dumps(record("good")) + "\n")
    assert _import(source).dropped == {"nested_too_deeply": 1}


def test_the_last_step_alone_can_be_supervised_in_every_format(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("a")])
    for supervise, flags in (("all", [True, True]), ("last", [False, True]), (None, [True, True])):
        report = _import(source, supervise=supervise, overwrite=True)
        (trace,) = load_traces(tmp_path / "out.jsonl")
        assert [step.train for step in trace.steps] == flags
        assert report.supervise == (supervise or "all")
    # Where only its last step is trained on, a call without result is all that a record is for.
    prefix = write_lines(tmp_path / "prefix.jsonl", [record("p", CUT_SHORT[:4])])
    assert import_traces(prefix, tmp_path / "p.jsonl", supervise="last").accepted == 1
    with pytest.raises(DataError, match="1 incomplete"):
        import_traces(prefix, tmp_path / "p.jsonl", supervise="all", overwrite=True)


def test_training_may_drop_or_keep_invalid_calls(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("good"), record("call", UNDECLARED)])
    dropped: list[DataError] = []
    assert [t.id for t in load_traces(source, "openai", invalid_calls="drop", on_drop=dropped.append)] == ["good"]
    assert [error.trace_id for error in dropped] == ["call"]
    assert len(list(load_traces(source, "openai", invalid_calls="keep"))) == 2


def test_a_wrong_type_in_a_native_file_names_its_place(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"id": "t", "turns": [{"user": "q?"}, {"step": {"thought": 5}}]}])
    with pytest.raises(DataError, match=r"in\.jsonl:1, trace t, step 0: the thought of a step must be text"):
        list(load_traces(source))


# Real files


@pytest.mark.parametrize("guessed", [False, True])
def test_malformed_files_end_as_their_index_says(
    shared_data: Callable[[str], Path], tmp_path: Path, guessed: bool
) -> None:
    folder = shared_data("malformed")
    entries = json.loads((folder / "index.json").read_text())
    assert entries
    for entry in entries:
        path, expected = folder / entry["file"], entry["expected"]
        format = "auto" if guessed else entry["format"].removesuffix("_messages")
        out = tmp_path / f"{path.stem}.jsonl"
        if expected == "error":
            with pytest.raises(DataError, match=path.name):
                import_traces(path, out, format=format)
            assert not out.exists()
            continue
        report = import_traces(path, out, format=format)
        bad = entry["bad_records"] if expected == "drop" else []
        assert (report.read, report.accepted) == (entry["records"], entry["records"] - len(bad)), entry["file"]
        if bad:
            assert [row["line"] - 1 for _, row in read_jsonl(dropped_path(out))] == bad


def _real(path: Path, tmp_path: Path, **options: Any) -> tuple[ImportReport, list[Trace]]:
    out = tmp_path / "real.jsonl.gz"
    report = import_traces(path, out, **options)
    files = [out] if report.chat_out is None else [out, Path(report.chat_out)]
    return report, [trace for file in files for trace in load_traces(file, invalid_calls="keep")]


def _count(traces: list[Trace]) -> tuple[int, int, int, int]:
    """User messages, steps, calls, results."""
    steps = [step for trace in traces for step in trace.steps]
    users = sum(len(trace.turns) for trace in traces) - len(steps)
    return users, len(steps), sum(len(step.calls) for step in steps), sum(len(step.results) for step in steps)


def test_glaive_records_are_as_their_readme_says(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    report, traces = _real(shared_data("sharegpt/glaive_toolcall_en.json"), tmp_path)
    assert (report.format, report.guessed, report.read, report.dropped) == ("sharegpt", True, 60, {})
    assert report.kinds == {"trace": 49, "chat": 11}
    assert _count(traces) == (131, 131 + 60, 60, 60)
    kinds = Counter((min(_count([trace])[2], 2), min(len(trace.initial_tools), 2)) for trace in traces)
    assert kinds == {(1, 1): 11, (2, 2): 10, (0, 0): 11, (1, 2): 8, (0, 1): 10, (2, 1): 10}


def test_biotool_records_are_single_hop(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    path = shared_data("biotool/sharegpt_train.json")
    report, _ = _real(path, tmp_path)
    assert (report.read, report.accepted, report.dropped) == (15, 9, {"invalid_arguments": 6})
    report, traces = _real(path, tmp_path, invalid_calls="keep", overwrite=True)
    assert (report.accepted, _count(traces)) == (15, (15, 15, 15, 0))
    assert all(trace.system and len(trace.initial_tools) == 2 and trace.is_complete for trace in traces)


def test_rows_that_are_no_conversations_are_said_to_be_none(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"15 have none of .*, but function, document, params, observation, query"):
        _real(shared_data("biotool/few_shot.json"), tmp_path)


def test_toolbench_rows_are_as_their_readme_says(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    path = shared_data("toolbench/train_messages.jsonl")
    report, traces = _real(path, tmp_path)
    # Two end in text without Finish, two give up, and the last call of one names no declared function.
    assert (report.format, report.read, report.accepted) == ("toolbench", 36, 31)
    assert (report.supervise, report.dropped) == ("last", {"incomplete": 4, "undeclared_tool": 1})
    assert all([step.train for step in trace.steps] == [False] * (len(trace.steps) - 1) + [True] for trace in traces)
    report, traces = _real(path, tmp_path, invalid_calls="keep", incomplete="steps", overwrite=True)
    assert report.accepted == 36
    rows = [row for _, row in read_jsonl(path)]
    counts = Counter(message["role"] for row in rows for message in row["messages"])
    finished = [row["messages"][-1].get("function_call", {}).get("name") == "Finish" for row in rows]
    calls = sum("function_call" in message for row in rows for message in row["messages"]) - sum(finished)
    assert _count(traces) == (counts["user"], counts["assistant"], calls, counts["function"])
    answers = [row["finish_type"] == "give_answer" and last for row, last in zip(rows, finished, strict=True)]
    assert [trace.answer is not None for trace in traces] == answers
    assert all(trace.system for trace in traces)


def test_all_genegpt_traces_are_accepted(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    path = shared_data("genegpt/traces.jsonl.gz")
    report, traces = _real(path, tmp_path)
    assert (report.read, report.accepted, report.dropped) == (1444, 1444, {})
    for (_, original), trace in zip(read_jsonl(path), traces, strict=True):
        replies = [message for message in original["messages"] if message["role"] == "tool"]
        assert [result.content for step in trace.steps for result in step.results] == [m["content"] for m in replies]
        assert trace.answer == original["messages"][-1]["content"]
        assert trace_to_json(trace)["metadata"]["n_calls"] == sum(len(step.calls) for step in trace.steps)


def test_tau_traces_end_without_an_answer(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    path = shared_data("openai_messages/tau_airline.jsonl.gz")
    with pytest.raises(DataError, match=r"60 incomplete: .*--incomplete steps"):
        import_traces(path, tmp_path / "out.jsonl", format="openai")


def test_tau_traces_are_whole_otherwise(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    path = shared_data("openai_messages/tau_airline.jsonl.gz")
    report, traces = _real(path, tmp_path, incomplete="steps")
    assert (report.accepted, report.dropped) == (60, {})
    assert sum(len(step.calls) for trace in traces for step in trace.steps) == 376
