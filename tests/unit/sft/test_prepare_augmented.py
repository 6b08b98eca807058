"""Augmentation and ablations on their way into prepared rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.augmentation import GET_DOSE, TOOLBOX, TOOLS, rewrite_set
from tests.support.tiny_training import tiny_recipe, write_traces
from tests.support.tokenizers import smollm2
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.data.reading import read_jsonl
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.virtual import RAG_TOOL
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import wire_format_for
from txagent_train.sft.prepare import Preparation, describe, report_table
from txagent_train.sft.prepared import PreparedRows


def _use(name: str, **arguments: Any) -> Step:
    return Step(f"I use {name}.", calls=(ToolCall(name, arguments),), results=(ToolResult(0, "1 mg"),))


def _trace(number: int, *steps: Step) -> Trace:
    use = _use("get_dose", drug_name=f"d{number}", limit=1)
    turns = (UserMessage(f"What is the dose of {number}?"), *(steps or (use,)), Step("I have it."))
    return Trace(f"t{number}", turns, answer="1 mg", initial_tools=(GET_DOSE, *TOOLS[3:5], RAG_TOOL))


TRACES = [_trace(number) for number in range(6)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    TOOLBOX.write(tmp_path / "toolbox.json")
    rewrite_set(held_out_tools=frozenset({"v1-get_dose"})).write(tmp_path / "rewrites.jsonl")
    near = {"toolbox_hash": TOOLBOX.hash, "neighbours": {"get_dose": ["get_dose_form"]}}
    (tmp_path / "near.json").write_text(json.dumps(near))
    names = {"toolbox": "toolbox.json", "rewrites": "rewrites.jsonl", "neighbours": "near.json"}
    return {key: str(tmp_path / name) for key, name in names.items()} | {"n_hard": 1, "originals": False}


def _preparation(folder: Path, traces: list[Trace], seed: int = 0, **data: Any) -> Preparation:
    path, held = write_traces(folder / "data.jsonl", traces), write_traces(folder / "eval.jsonl", TRACES[:2])
    sources = {"sources": [{"path": str(path)}], "eval": [{"path": str(held)}]}
    recipe = tiny_recipe(folder, data=sources | data).model_copy(update={"seed": seed})
    tokenizer = smollm2()
    renderer = Renderer(tokenizer, wire_format_for(tokenizer, syntax="txagent", finish="call"), seed=seed)
    return Preparation.of(recipe, renderer)


def _epochs(prepared: Preparation, count: int = 1) -> list[PreparedRows]:
    return prepared.epochs(count, traces_per_step=2, max_steps=None)


def _texts(prepared: Preparation, rows: PreparedRows) -> list[str]:
    decode = prepared.renderer.tokenizer.decode
    return [decode(rows.row(number)[0].tolist(), skip_special_tokens=False) for number in range(len(rows))]


def test_rows_are_of_the_augmented_traces_and_the_report_says_what_was_done(
    tmp_path: Path, files: dict[str, Any]
) -> None:
    prepared = _preparation(tmp_path, TRACES, augment=files)
    first, second = _epochs(prepared, 2)
    variation = prepared.guards.variation
    expected = [
        list(prepared.renderer.render(example).input_ids)
        for trace in TRACES
        for example in decompose(variation.apply(trace, epoch=1, training=True).trace, seed=0, epoch=1)
    ]
    assert [second.row(number)[0].tolist() for number in range(len(second))] == expected
    assert [first.row(number)[0].tolist() for number in range(len(first))] != expected, "another epoch"
    for text in _texts(prepared, first):
        assert "find_strength" in text and "I use get_dose" not in text
        assert "v1-get_dose" not in text and "fetch_shape" in text
    counts = first.report.augmented
    assert counts["traces_augmented"] == counts["tools_hidden"] == counts["distractors"] == 6
    assert counts["tools_renamed"] == 18
    assert "augmented: 6 distractors" in describe(first.report)
    assert ("augmentation", "distractors added", 6) in report_table(first.report).rows


def test_held_out_data_is_not_augmented(tmp_path: Path, files: dict[str, Any]) -> None:
    prepared = _preparation(tmp_path, TRACES, augment=files)
    rows = prepared.evaluation()
    assert rows is not None and not rows.report.augmented
    assert all("get_dose" in text and "v1-get_dose" in text for text in _texts(prepared, rows))


def test_the_contents_of_the_files_decide_the_key(tmp_path: Path, files: dict[str, Any]) -> None:
    def key(**more: Any) -> str:
        prepared = _preparation(tmp_path, TRACES, **{"augment": files} | more)
        return prepared.key(prepared.data.sources, 0)

    before = key()
    moved = tmp_path / "moved.json"
    moved.write_bytes(Path(files["toolbox"]).read_bytes())
    assert key(augment=files | {"toolbox": str(moved)}) == before, "files count by content"
    keys = {before, key(augment=None), key(augment=files | {"share": 0.5}), key(augment=files | {"rewrites": None})}
    keys |= {key(ablation={"thoughts": False}), key(ablation={"max_steps": 1}), key(ablation={"tool_fraction": 0.5})}
    (tmp_path / "near.json").write_text(json.dumps({"toolbox_hash": TOOLBOX.hash, "neighbours": {}}))
    assert len({*keys, key()}) == 8


def test_what_is_left_out_is_counted_and_named(tmp_path: Path, files: dict[str, Any]) -> None:
    unknown = replace(
        _trace(7, _use("none_such", x=1)), initial_tools=(ToolSpec("none_such", "Another.", {}), GET_DOSE)
    )
    old = _trace(8, _use("v1-get_dose", target="x"))
    use = _use("get_dose", drug_name="a", limit=1)
    data = [*TRACES, unknown, old, _trace(9, use, use), _trace(10, _use("checkPair", drugA="a", drugB="b"))]
    prepared = _preparation(
        tmp_path, data, augment=files, invalid_calls="drop", ablation={"max_steps": 1, "tool_fraction": 0.999}
    )
    (rows,) = _epochs(prepared)
    assert rows.report.dropped_traces == {"tool_not_in_toolbox": 1, "held_out_tool": 1, "over_max_steps": 1}
    named = [record for _, record in read_jsonl(rows.directory / "dropped.jsonl")]
    assert [(record["id"], record["line"]) for record in named] == [("t7", 7), ("t8", 8), ("t9", 9)]
    assert "none_such" in named[0]["problem"]
    with pytest.raises(DataError, match=r"data.jsonl:7, trace t7, step 0: the call names none_such, which is not in"):
        _epochs(_preparation(tmp_path, [*TRACES, unknown], augment=files))
    kept = _epochs(_preparation(tmp_path, [*TRACES, unknown], augment=files, invalid_calls="keep"))[0]
    assert "t7" in kept.trace_ids


def test_a_share_of_the_toolbox_is_all_there_is(tmp_path: Path, files: dict[str, Any]) -> None:
    prepared = _preparation(
        tmp_path, TRACES, augment=files | {"rewrites": None, "n_random": 9}, ablation={"tool_fraction": 0.5}
    )
    withheld = prepared.guards.variation.augmenter.withheld[1].names  # type: ignore[union-attr]
    if "get_dose" in withheld:
        with pytest.raises(DataError, match="no sample is left: 6 tool_outside_fraction"):
            _epochs(prepared)
        prepared = _preparation(tmp_path, TRACES, seed=1, augment=files, ablation={"tool_fraction": 0.5})
    (rows,) = _epochs(prepared)
    withheld = prepared.guards.variation.augmenter.withheld[1].names  # type: ignore[union-attr]
    assert len(withheld) == 3
    for text in _texts(prepared, rows):
        assert not any(f'"name": "{name}"' in text for name in withheld)


def test_thoughts_are_taken_out_of_outputs_and_history_in_held_out_data_too(tmp_path: Path) -> None:
    prepared = _preparation(tmp_path, TRACES, ablation={"thoughts": False})
    held_out = prepared.evaluation()
    assert held_out is not None
    for rows in (*_epochs(prepared), held_out):
        for text in _texts(prepared, rows):
            assert "I use" not in text and "I have it" not in text
            assert "[TOOL_CALLS]" in text


def test_rewrites_of_another_toolbox_stop_before_anything_is_prepared(tmp_path: Path, files: dict[str, Any]) -> None:
    Toolbox(TOOLBOX.tools[:-1]).write(Path(files["toolbox"]), overwrite=True)
    with pytest.raises(DataError, match=r"rewrites.jsonl: these are rewrites for another toolbox; it lacks"):
        _preparation(tmp_path, TRACES, augment=files)


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(tmp_path: Path, files: dict[str, Any]) -> None:
    traces = [_trace(number) for number in range(300)]
    augment = files | {"n_random": 1, "virtual_share": 0.3, "originals": True}
    contents = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        (rows,) = _epochs(_preparation(folder, traces, augment=augment, workers=workers))
        contents.append({path.name: path.read_bytes() for path in rows.directory.glob("*.npy")})
        assert rows.report.augmented["virtual_calls"] > 50
    assert contents[0] == contents[1]
