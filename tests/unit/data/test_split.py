from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import Step, ToolCall, Trace, UserMessage
from txagent_train.data.loading import import_traces, load_traces
from txagent_train.data.split import SplitReport, choose_heldout, split_traces, trace_keys


def _trace(id: str, question: str = "", entities: Sequence[str] = (), calls: Iterable[dict[str, Any]] = ()) -> Trace:
    step = Step(calls=tuple(ToolCall("get", arguments) for arguments in calls) or (ToolCall("get", {}),))
    return Trace(id, (UserMessage(question or f"question {id}"), step), entities=tuple(entities))


def _split(traces: Sequence[Trace], fraction: float = 0.2, seed: int = 0) -> tuple[set[str], set[str], SplitReport]:
    heldout, straddlers, report = choose_heldout([trace_keys(trace) for trace in traces], fraction=fraction, seed=seed)
    assert report.traces == report.train + report.heldout + report.straddlers
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
    assert (report.calls_tie, report.largest_component, report.largest_share) == (False, 10, 0.5)
    assert "50%" in report.note
    numbers = {int(name[1:]) for name in heldout if name.startswith("h")}
    neighbours = {f"h{other}" for n in numbers for other in (n - 1, n + 1) if 0 <= other < 10}
    assert straddlers == neighbours - heldout


def test_what_cannot_be_split_is_an_error() -> None:
    with pytest.raises(DataError, match="no part of the 5 traces"):
        _split([_trace(str(n), "one question") for n in range(5)])
    with pytest.raises(DataError, match="nothing is left"):
        _split([_trace("a")])


def test_files(tmp_path: Path) -> None:
    source = _write(tmp_path / "in.jsonl", [_trace(str(n), entities=[str(n // 2)]) for n in range(40)])
    report = split_traces(source, tmp_path / "out", format="native", fraction=0.1, seed=3)
    train, heldout = (
        list(load_traces(tmp_path / "out" / f"{part}.jsonl", invalid_calls="keep")) for part in ("train", "heldout")
    )
    assert (len(train), len(heldout)) == (report.train, report.heldout) == (36, 4)
    assert not {e for t in train for e in t.entities} & {e for t in heldout for e in t.entities}
    assert json.loads((tmp_path / "out" / "split.json").read_text()) == report.to_json()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["heldout.jsonl", "split.json", "train.jsonl"]
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


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_the_fraction_lies_between_0_and_1(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        split_traces(tmp_path / "in.jsonl", tmp_path, format="native", fraction=fraction, seed=0)


def test_genegpt_splits_whole(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    import_traces(shared_data("genegpt/traces.jsonl.gz"), tmp_path / "g.jsonl", format="openai")
    report = split_traces(tmp_path / "g.jsonl", tmp_path / "out", format="native", fraction=0.1, seed=0)
    assert (report.heldout, report.straddlers, report.calls_tie) == (144, 0, True)
    sides = [[trace_keys(t).all for t in load_traces(tmp_path / "out" / f"{p}.jsonl")] for p in ("train", "heldout")]
    train, heldout = (frozenset().union(*side) for side in sides)
    assert not train & heldout
