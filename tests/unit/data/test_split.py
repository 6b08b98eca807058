from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import Step, ToolCall, Trace, UserMessage
from txagent_train.data.frozen import FrozenSet
from txagent_train.data.importing import import_traces
from txagent_train.data.keys import TraceKeys, trace_keys
from txagent_train.data.loading import load_traces
from txagent_train.data.split import SplitReport, choose_heldout, split_traces


def _trace(id: str, question: str = "", entities: Sequence[str] = (), calls: Iterable[dict[str, Any]] = ()) -> Trace:
    step = Step(calls=tuple(ToolCall("get", arguments) for arguments in calls) or (ToolCall("get", {}),))
    return Trace(id, (UserMessage(question or f"question {id}"), step), entities=tuple(entities))


def _split(traces: Sequence[Trace], fraction: float = 0.2, seed: int = 0) -> tuple[set[str], set[str], SplitReport]:
    heldout, straddlers, report = choose_heldout([trace_keys(trace) for trace in traces], fraction=fraction, seed=seed)
    assert report.traces == report.train + report.heldout + report.straddlers
    shares = report.train_share + report.heldout_share + report.straddlers_share
    assert shares == pytest.approx(1, abs=2e-4)
    return {traces[i].id for i in heldout}, {traces[i].id for i in straddlers}, report


def _write(path: Path, traces: Iterable[Trace]) -> Path:
    path.write_text("".join(json.dumps(trace_to_json(trace)) + "\n" for trace in traces))
    return path


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "pair",
    [
        (_trace("a", "The same?"), _trace("b", " the  SAME? ")),
        (_trace("a", entities=["Ibuprofen"]), _trace("b", entities=["ibuprofen"])),
        (_trace("a", calls=[{"x": 1, "y": 2}]), _trace("b", calls=[{"y": 2, "x": 1}])),
    ],
    ids=["question", "entity", "call"],
)
def test_what_is_tied_stays_together(pair: tuple[Trace, Trace], seed: int) -> None:
    heldout, _, report = _split([*pair, *(_trace(str(n)) for n in range(18))], seed=seed)
    assert ("a" in heldout) == ("b" in heldout)
    assert report.largest_component == 2


def test_a_call_without_arguments_and_another_number_type_tie_nothing() -> None:
    traces = [_trace("a", calls=[{"x": 1}]), _trace("b", calls=[{"x": 1.0}]), _trace("c"), _trace("d"), _trace("e")]
    assert _split(traces)[2].largest_component == 1


def test_the_choice_depends_on_the_seed_not_on_the_order() -> None:
    traces = [_trace(str(n)) for n in range(50)]
    chosen = _split(traces)[0]
    assert len(chosen) == 10
    assert _split(traces[::-1])[0] == chosen
    assert _split(traces, seed=1)[0] != chosen


def test_calls_that_tie_too_much_are_dropped_from_training_instead() -> None:
    hub = [_trace(f"h{n}", calls=[{"x": n}, {"x": n + 1}]) for n in range(10)]
    heldout, straddlers, report = _split([*hub, *(_trace(str(n)) for n in range(10))])
    assert (report.tied_by, report.largest_component, report.largest_share) == ("question and entity", 10, 0.5)
    assert "50%" in report.note and "held out by question and entity instead" in report.note
    numbers = {int(name[1:]) for name in heldout if name.startswith("h")}
    neighbours = {f"h{other}" for n in numbers for other in (n - 1, n + 1) if 0 <= other < 10}
    assert straddlers == neighbours - heldout


def test_entities_that_tie_too_much_leave_the_question() -> None:
    chain = [_trace(str(n), entities=[f"e{n}", f"e{n + 1}"]) for n in range(50)]
    heldout, straddlers, report = _split(chain, fraction=0.1)
    assert (report.tied_by, report.largest_share, len(heldout)) == ("question", 1.0, 5)
    neighbours = {str(int(name) + side) for name in heldout for side in (-1, 1) if 0 <= int(name) + side < 50}
    assert straddlers == neighbours - heldout


def test_what_cannot_be_split_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no part of the 5 traces .* tied by question has 5"):
        _split([_trace(str(n), "one question") for n in range(5)])
    with pytest.raises(DataError, match="nothing is left"):
        _split([_trace("a")])
    with pytest.raises(DataError, match="nothing is left"):
        _split([_trace(str(n), entities=["human"]) for n in range(20)])
    with pytest.raises(DataError, match=r"no part of the 12 traces .* question, entity and call has 2"):
        _split([_trace(str(n), f"question {n // 2}") for n in range(12)], fraction=0.1)


def test_traces_that_say_nothing_of_themselves_are_not_tied() -> None:
    blank = [_trace(str(n), entities=["", " "]) for n in range(10)]
    silent = [Trace(f"s{n}", (Step(calls=(ToolCall("get", {}),)),)) for n in range(10)]
    assert _split([*blank, *silent])[2].largest_component == 1


_KEYS = st.sets(st.integers(0, 12), max_size=3)


@settings(max_examples=300, deadline=None)
@given(
    traces=st.lists(st.tuples(st.integers(0, 12), _KEYS, _KEYS), min_size=1, max_size=40),
    ids=st.lists(st.integers(0, 5), min_size=40, max_size=40),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 3),
    tied=st.booleans(),
)
def test_no_key_is_on_both_sides(
    traces: list[tuple[int, set[int], set[int]]], ids: list[int], fraction: float, seed: int, tied: bool
) -> None:
    """Whatever ties the traces (also all of them into one component), and where ids are repeated."""
    keys = [
        TraceKeys(
            str(ids[number]),
            frozenset({("question", str(question)), *(("entity", str(entity)) for entity in entities)}),
            frozenset({("call", str(call)) for call in calls} | ({("call", "all")} if tied else set())),
        )
        for number, (question, entities, calls) in enumerate(traces)
    ]
    try:
        heldout, straddlers, report = choose_heldout(keys, fraction=fraction, seed=seed)
    except DataError as error:
        assert error.reason == "cannot_split"
        return
    train = set(range(len(keys))) - heldout - straddlers
    assert heldout and train and not heldout & straddlers
    assert (report.train, report.heldout, report.straddlers) == (len(train), len(heldout), len(straddlers))
    sides = [frozenset().union(*(keys[item].all for item in side)) for side in (train, heldout)]
    assert not sides[0] & sides[1]
    # Only what shares something was dropped.
    assert all(keys[item].all & sides[1] for item in straddlers)
    if report.tied_by == "question, entity and call":
        assert not straddlers and report.largest_share <= 0.2


def test_files(tmp_path: Path) -> None:
    source = _write(tmp_path / "in.jsonl", [_trace(str(n), entities=[str(n // 2)]) for n in range(40)])
    report = split_traces(source, tmp_path / "out", format="native", fraction=0.1, seed=3)
    train, heldout = (
        list(load_traces(tmp_path / "out" / f"{part}.jsonl", invalid_calls="keep")) for part in ("train", "heldout")
    )
    assert (len(train), len(heldout)) == (report.train, report.heldout) == (36, 4)
    assert not {e for t in train for e in t.entities} & {e for t in heldout for e in t.entities}
    assert json.loads((tmp_path / "out" / "split.json").read_text()) == report.to_json()
    names = ["heldout.frozen.json", "heldout.jsonl", "split.json", "train.jsonl"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    frozen = FrozenSet.read(tmp_path / "out" / "heldout.frozen.json")
    assert all(frozen.contains(trace) for trace in heldout) and not any(map(frozen.contains, train))
    assert frozen.created_from["traces"] == 4 and frozen.created_from["seed"] == 3
    with pytest.raises(UserError, match="exists already"):
        split_traces(source, tmp_path / "out", format="native", fraction=0.1, seed=3)
    before = (tmp_path / "out" / "train.jsonl").read_bytes()
    split_traces(source, tmp_path / "out", format="native", fraction=0.1, seed=3, overwrite=True)
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == before


def test_straddlers_are_named(tmp_path: Path) -> None:
    source = _write(tmp_path / "in.jsonl", [_trace(str(n), calls=[{"x": n}, {"x": n + 1}]) for n in range(20)])
    report = split_traces(source, tmp_path, format="native", fraction=0.2, seed=0)
    rows = [json.loads(line) for line in (tmp_path / "straddlers.jsonl").read_text().splitlines()]
    assert len(rows) == report.straddlers > 0
    assert {row["reason"] for row in rows} == {"straddler"}
    assert all(int(row["id"]) == row["line"] - 1 for row in rows)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_the_fraction_lies_between_0_and_1(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        split_traces(tmp_path / "in.jsonl", tmp_path, format="native", fraction=fraction, seed=0)


def test_genegpt_splits_whole(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    import_traces(shared_data("genegpt/traces.jsonl.gz"), tmp_path / "g.jsonl", format="openai")
    report = split_traces(tmp_path / "g.jsonl", tmp_path / "out", format="native", fraction=0.1, seed=0)
    assert (report.heldout, report.straddlers, report.tied_by) == (144, 0, "question, entity and call")
    sides = [[trace_keys(t).all for t in load_traces(tmp_path / "out" / f"{p}.jsonl")] for p in ("train", "heldout")]
    train, heldout = (frozenset().union(*side) for side in sides)
    assert not train & heldout
