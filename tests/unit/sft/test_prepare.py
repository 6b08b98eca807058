from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_training import small_traces, tiny_recipe, write_traces
from tests.support.tokenizers import smollm2
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, StepStatus, ToolCall, Trace, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.data.reading import read_jsonl
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import wire_format_for
from txagent_train.sft.prepare import Preparation, describe, report_table


def preparation(tmp_path: Path, traces: list[Trace], *, seed: int = 0, **data: Any) -> Preparation:
    path = write_traces(tmp_path / "data.jsonl", traces)
    recipe = tiny_recipe(tmp_path, data={"sources": [{"path": str(path), "weight": 2.0}], "eval": []} | data)
    tokenizer = smollm2()
    renderer = Renderer(tokenizer, wire_format_for(tokenizer, syntax="txagent", finish="call"), seed=seed)
    return Preparation.of(recipe.model_copy(update={"seed": seed}), renderer)


def test_prepared_rows_are_the_rendered_samples(tmp_path: Path) -> None:
    traces = small_traces(3)
    prepared = preparation(tmp_path, traces)
    (rows,) = prepared.epochs(1, traces_per_step=2, max_steps=None)
    expected = [prepared.renderer.render(example) for trace in traces for example in decompose(trace, seed=0, epoch=0)]
    assert len(rows) == len(expected) == 6
    for number, example in enumerate(expected):
        ids, mask = rows.row(number)
        assert tuple(ids) == example.input_ids and tuple(mask) == example.loss_mask
        assert rows.weight[number] == 2.0
    assert rows.report.supervised_tokens == sum(sum(example.loss_mask) for example in expected)


def test_rows_are_made_once_and_again_when_anything_that_decides_them_changes(tmp_path: Path) -> None:
    traces = small_traces(3)
    prepared = preparation(tmp_path, traces)
    (rows,) = prepared.epochs(1, traces_per_step=2, max_steps=None)
    made = (rows.directory / "rows.json").stat().st_mtime_ns
    preparation(tmp_path, traces).epochs(1, traces_per_step=2, max_steps=None)
    assert (rows.directory / "rows.json").stat().st_mtime_ns == made

    sources = prepared.data.sources
    others = [
        preparation(tmp_path, traces, seed=1),
        preparation(tmp_path, traces, max_length=999),
        preparation(tmp_path, traces, shuffle_tools=False),
        preparation(tmp_path, small_traces(4)),
        replace(prepared, renderer=Renderer(smollm2(), replace(prepared.renderer.wire, tool_delivery="result"))),
    ]
    keys = {prepared.key(sources, 0), prepared.key(sources, 1), *(other.key(sources, 0) for other in others)}
    assert len(keys) == 7


def test_epochs_differ_by_the_order_of_tools_and_unneeded_ones_are_not_made(tmp_path: Path) -> None:
    prepared = preparation(tmp_path, small_traces(8))
    epochs = prepared.epochs(3, traces_per_step=4, max_steps=4)
    assert len(epochs) == 2
    assert epochs[0].report.tokens == epochs[1].report.tokens
    assert any(tuple(epochs[0].row(row)[0]) != tuple(epochs[1].row(row)[0]) for row in range(len(epochs[0])))


def test_a_sample_that_is_too_long_is_an_error_or_a_counted_drop(tmp_path: Path) -> None:
    traces = small_traces(3)
    (rows,) = preparation(tmp_path, traces).epochs(1, traces_per_step=2, max_steps=None)
    limit = sorted(rows.length)[2]
    with pytest.raises(DataError, match=r"data.jsonl:\d, trace trace-\d, step \d: the sample has \d+ tokens") as caught:
        preparation(tmp_path, traces, max_length=int(limit)).epochs(1, traces_per_step=2, max_steps=None)
    (kept,) = preparation(tmp_path, traces, max_length=int(limit), overlong="drop").epochs(
        1, traces_per_step=2, max_steps=None
    )
    assert max(kept.length) <= limit
    assert len(kept) + kept.report.dropped["overlong"] == len(rows)
    assert set(kept.length) <= set(rows.length)
    too_long = [length for length in rows.length if length > limit]
    assert f"{len(too_long)} samples of the file are too long, the longest has {max(too_long)}" in str(caught.value)
    ways = "or data.overlong=summarize, or data.overlong=drop"
    assert caught.value.fix == f"set data.max_length={max(too_long)} or more, {ways}"
    named = [record for _, record in read_jsonl(kept.directory / "dropped.jsonl")]
    assert len(named) == len(too_long) and {record["reason"] for record in named} == {"overlong"}
    assert all(record["id"] == f"trace-{record['line'] - 1}" for record in named)
    with pytest.raises(DataError, match=r"no sample is left: 6 overlong"):
        preparation(tmp_path, traces, max_length=5, overlong="drop").epochs(1, traces_per_step=2, max_steps=None)


def test_steps_that_are_not_trained_on_make_no_rows(tmp_path: Path) -> None:
    def untrained(trace: Trace) -> Trace:
        return replace(trace, turns=tuple(replace(t, train=False) if isinstance(t, Step) else t for t in trace.turns))

    traces = small_traces(3)
    (rows,) = preparation(tmp_path, [untrained(traces[0]), *traces[1:]]).epochs(1, traces_per_step=2, max_steps=None)
    assert rows.trace_ids == ("trace-1", "trace-2")
    assert (rows.report.untrained, rows.report.untrained_traces) == ({"train_false": 2}, 1)


def test_every_step_is_a_sample_or_counted_by_reason_and_named(tmp_path: Path) -> None:
    first = small_traces(1)[0]
    talk = Step("<|im_end|> I say."), Step("More."), UserMessage("And?"), Step("Fine."), UserMessage("So?")
    call, results = first.steps[0].calls, first.steps[0].results
    odd = Step(raw_output="x", status=StepStatus.UNPARSABLE), Step(calls=call, results=results, weight=0.0)
    rejected = Step("No.", status=StepStatus.REJECTED)
    traces = [
        first,
        replace(first, id="odd", turns=(first.turns[0], *talk, *odd, rejected, *first.turns[1:])),
        replace(first, id="wrong", turns=(first.turns[0], Step(calls=(ToolCall("none", {}),))), answer=None),
    ]
    prepared = preparation(tmp_path, traces, invalid_calls="drop", eval=[])
    (rows,) = prepared.epochs(1, traces_per_step=2, max_steps=None)
    report = rows.report
    assert report.steps == 10 == report.rows + sum(report.dropped.values()) + sum(report.untrained.values())
    assert report.dropped == {"step_without_call": 1}
    assert report.untrained == {"unparsable": 1, "weight_zero": 1, "rejected": 1}
    assert report.dropped_traces == {"undeclared_tool": 1}
    assert report.neutralised > 0 and report.neutralised_in_targets == 0
    named = [record for _, record in read_jsonl(rows.directory / "dropped.jsonl")]
    assert [(record["line"], record["id"], record["step"], record["reason"]) for record in named] == [
        (2, "odd", 0, "step_without_call"),
        (3, "wrong", 0, "undeclared_tool"),
    ]
    assert "dropped: 1 step_without_call; dropped traces: 1 undeclared_tool; steps not" in describe(report)
    table = report_table(report)
    assert ("steps of the traces", "", 10) in table.rows and ("sample dropped", "step_without_call", 1) in table.rows


def test_held_out_data_is_checked_without_the_epochs(tmp_path: Path) -> None:
    held_out = write_traces(tmp_path / "eval.jsonl", small_traces(2))
    prepared = preparation(tmp_path, small_traces(3), eval=[{"path": str(held_out)}])
    rows = prepared.evaluation()
    assert rows is not None and len(rows) == 4
    assert [folder.name for folder in prepared.directory.glob("[!.]*")] == [rows.directory.name]
    assert rows.directory.name.startswith("eval-")


def test_a_copy_under_another_name_is_prepared_for_itself(tmp_path: Path) -> None:
    """Records without an id are named after their file, and ids seed call ids and the order of tools."""
    line = json.dumps({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})
    rows = []
    for name in ("alpha", "beta"):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(line + "\n")
        source = {"path": str(path), "format": "openai", "kind": "chat"}
        prepared = preparation(tmp_path, [], sources=[source], prepared_dir=str(tmp_path / "shared"))
        rows += prepared.epochs(1, traces_per_step=1, max_steps=None)
    assert [part.trace_ids for part in rows] == [("alpha-1",), ("beta-1",)]


def test_a_torn_part_is_made_again(tmp_path: Path) -> None:
    prepared = preparation(tmp_path, small_traces(3))
    folder = prepared.directory / f"epoch-000-{prepared.key(prepared.data.sources, 0)[:16]}"
    parts = folder.with_name(f".{folder.name}.parts")
    parts.mkdir(parents=True)
    for name, content in (("s000-00000000.npz", b"PK\x03\x04 torn"), ("s000-00000001.npz", b"")):
        (parts / name).write_bytes(content)
    (rows,) = prepared.epochs(1, traces_per_step=1, max_steps=None)
    assert len(rows) == 6 and rows.directory == folder and not parts.exists()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_id_that_comes_twice_is_told_whichever_process_meets_it(tmp_path: Path, workers: int) -> None:
    """One that was excluded does not count, however near it stands."""
    few = small_traces(3)
    traces = [replace(few[0], id=f"t{number}", entities=("plain",)) for number in range(600)]
    traces[0] = replace(traces[0], id="excluded", entities=("left out",))
    traces[300] = replace(traces[300], id="excluded")
    listed = tmp_path / "excluded.txt"
    listed.write_text("left out\n")
    prepared = preparation(tmp_path, traces, exclude=[str(listed)], workers=workers)
    (rows,) = prepared.epochs(1, traces_per_step=1, max_steps=None)
    assert rows.report.traces == 599
    traces[400] = replace(traces[400], id="t1")
    prepared = preparation(tmp_path, traces, exclude=[str(listed)], workers=workers)
    with pytest.raises(DataError, match=r"data.jsonl:401, trace t1: .*same id\n.*in line 2"):
        prepared.epochs(1, traces_per_step=1, max_steps=None)
