"""``data show``: the tokens of one record, as text, JSON and HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.tiny_training import tiny_recipe
from tests.support.tokenizers import smollm2
from tests.support.traces import odd_trace
from txagent_train.cli.data import app
from txagent_train.cli.data.judging import DEFAULT_MODEL
from txagent_train.config.loading import to_yaml
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import UserError
from txagent_train.core.records import Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import WireFormat

RUNNER = CliRunner()
TOOL = ToolSpec("get_dose", "The dose.", {"type": "object", "properties": {}})


def _plain(name: str = "plain", **last: Any) -> Trace:
    steps = (
        Step("I look.", calls=(ToolCall("get_dose", {"drug": "x"}),), results=(ToolResult(0, "5 mg"),)),
        Step("Again.", calls=(ToolCall("get_dose", {}),), results=(ToolResult(0, "6 mg"),), train=False),
        Step(**last),
    )
    return Trace(id=name, turns=(UserMessage("Which dose?"), *steps), answer="5 漢 mg", initial_tools=(TOOL,))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    traces = [_plain(), odd_trace(), _plain("[bold]third\x1b[2J")]
    path = tmp_path / "data.jsonl"
    lines = [json.dumps(trace_to_json(trace)) for trace in traces]
    path.write_text("\n".join([*lines[:2], '{"id": "broken", "turns": []}', lines[2]]) + "\n")
    return path


def _show(*arguments: object) -> str:
    return RUNNER.invoke(app, ["show", *map(str, arguments)], catch_exceptions=False).stdout


def _json(*arguments: object) -> dict[str, Any]:
    value = json.loads(_show(*arguments, "--json"))
    assert isinstance(value, dict)
    return value


def test_the_first_record_line_by_line(file: Path) -> None:
    shown = _show(file)
    lines = shown.splitlines()
    assert lines[0] == f"record 1 of {file}: trace plain"
    trained = [line for line in lines if line.startswith("+")]
    assert trained == [
        '+  I look.[TOOL_CALLS][{"name": "get_dose", "arguments": {"drug": "x"}}]<|im_end|>',
        '+  [FinalAnswer] 5 漢 mg[TOOL_CALLS][{"name": "Finish", "arguments": {}}]<|im_end|>',
    ]
    assert "step 1: not trained on (train_false)" in shown and "the record says train: false" in shown
    assert "   <|im_start|>user" in lines and "   Which dose?<|im_end|>" in lines
    assert shown.count("Indicate the end of multi-step reasoning") == 1  # what steps share is shown once
    assert "Indicate the end" in _show(file, "--step", 2)


def test_the_tokens_are_those_of_training(file: Path) -> None:
    renderer = Renderer(smollm2(), WireFormat("chatml", "txagent", "call"))
    examples = [renderer.render(example) for example in decompose(odd_trace())]
    for extra in ([], ["--tokens"]):
        steps = _json(file, "--record", 2, *extra)["steps"]
        shown = [step for step in steps if step["verdict"] == "trained on"]
        for step, example in zip(shown, examples, strict=True):
            pieces = step["pieces"]
            assert [number for piece in pieces for number in piece["ids"]] == list(example.input_ids)
            assert [piece["trained"] for piece in pieces for _ in piece["ids"]] == list(example.loss_mask)
            assert (step["tokens"], step["supervised_tokens"]) == (len(example.input_ids), sum(example.loss_mask))
            assert step["neutralised"] == example.neutralised
        assert [step["step"] for step in steps if step["verdict"] != "trained on"] == [1]


def test_records_by_number_and_by_id(file: Path) -> None:
    assert _json(file, "--record", 4)["id"] == _json(file, "--id", "[bold]third\x1b[2J")["id"]
    broken = _json(file, "--record", 3)
    assert broken["steps"] == [] and broken["fault"]["reason"] == "empty_trace" and broken["fault"]["line"] == 3
    assert "left out (empty_trace)" in _show(file, "-n", 3)
    for arguments in (["--record", "9"], ["--id", "nobody"], ["--step", "7"], ["--record", "1", "--id", "x"]):
        with pytest.raises(UserError):
            _show(file, *arguments)


def test_nothing_behind_the_record_is_read(file: Path) -> None:
    with file.open("a") as stream:
        stream.write("not json\n")
    assert _json(file, "--format", "native")["id"] == "plain"


def test_data_is_neither_markup_nor_control(file: Path, tmp_path: Path) -> None:
    shown = _show(file, "--record", 4, "--tokens")
    assert "[bold]third␛[2J" in shown and "\x1b[2J" not in shown
    trace = _plain("<script>alert(1)</script>", thought="<b>&\u202e</b>")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(trace_to_json(trace)) + "\n")
    page = tmp_path / "page.html"
    for extra in (["--tokens"], []):
        _show(other, "--html", page, *extra)
        text = page.read_text()
        assert "<script" not in text and "&lt;script&gt;" in text and "\u202e" not in text
        assert 'class="on" data-mark="+ "' in text and "default-src 'none'" in text
    assert "<span>&lt;b&gt;&amp;⟨U+202E⟩&lt;/b&gt;" in text


def test_a_recipe_decides_wire_limit_and_format(file: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    data = {"sources": [{"path": str(file)}], "eval": []}
    recipe.write_text(to_yaml(tiny_recipe(tmp_path, data=data, model={"name_or_path": DEFAULT_MODEL})))
    assert "<tool_call>" in _show(file, "wire.syntax=hermes", "--recipe", recipe)
    assert "stand in its result: check_pair" in _show(file, "wire.tool_delivery=result", "-r", recipe, "-n", 2)
    assert "stops the run (overlong)" in _show(file, "data.max_length=20", "--recipe", recipe)
    assert "left out (overlong)" in _show(file, "data.max_length=20", "data.overlong=drop", "--recipe", recipe)
    assert "stops the run (empty_trace)" in _show(file, "--recipe", recipe, "-n", 3)


def test_what_gave_way_so_that_a_sample_fits(tmp_path: Path) -> None:
    long = "The dose is 5 mg. " + "Nothing else. " + "Filler of many words here. " * 100
    call = ToolCall("get_dose", {"drug": "x"})
    steps = [Step("I look.", calls=(call,), results=(ToolResult(0, long),)) for _ in range(2)]
    trace = Trace(id="t", turns=(UserMessage("Which dose?"), *steps, Step()), answer="5", initial_tools=(TOOL,))
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(trace_to_json(trace)) + "\n")
    shown = _show(path, "--max-length", 1100, "--overlong", "summarize", "--step", 2)
    assert "results of early steps are summaries" in shown and shown.count("Filler of many words") == 100


def test_where_found_tools_stand(file: Path) -> None:
    for extra, place in (([], "in the list at the top"), (["--tool-delivery", "result"], "in its result")):
        steps = _json(file, "--record", 2, *extra)["steps"]
        said = [[note for note in step["notes"] if note.startswith("tools found")] for step in steps]
        assert said == [[], [], *[[f"tools found in step 0 stand {place}: check_pair"]] * (len(steps) - 2)]
        assert [len(step["tools"]) for step in steps if "tools" in step] == [2, 3, 3]
    shown = _show(file, "--record", 2, "--tool-delivery", "result")
    assert '{"content": ["check_pair"], "tools": [{"name": "check_pair", ' in shown
