from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.augmentation import GET_DOSE, TOOLBOX, TOOLS, rewrite_set
from tests.support.tiny_training import write_traces
from txagent_train.cli.app import app
from txagent_train.cli.data.comparing import marked
from txagent_train.core.records import Step, ToolCall, ToolResult, Trace, UserMessage

TRACE = Trace(
    "t",
    (
        UserMessage("What is the dose?"),
        Step(
            "I call get_dose.",
            calls=(ToolCall("get_dose", {"drug_name": "a", "limit": 1}),),
            results=(ToolResult(0, "1 mg"),),
        ),
        Step("Known."),
    ),
    answer="1 mg.",
    initial_tools=(GET_DOSE, TOOLS[5]),
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    TOOLBOX.write(tmp_path / "toolbox.json")
    rewrite_set().write(tmp_path / "rewrites.jsonl")
    write_traces(tmp_path / "t.jsonl", [TRACE])
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "kind: sft\nname: a\noutput_dir: out\nmodel: {name_or_path: embedded:smollm2-135m-instruct}\n"
        "data:\n  sources: [{path: t.jsonl}]\n"
        "  augment: {toolbox: toolbox.json, rewrites: rewrites.jsonl, n_random: 1, virtual_share: 1.0,\n"
        "    originals: false}\n"
    )
    return path


def _show(recipe: Path, *options: str, columns: int = 200) -> str:
    arguments = ["data", "show", str(recipe.parent / "t.jsonl"), "--recipe", str(recipe), *options]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.output


def _json(recipe: Path, *options: str) -> dict[str, Any]:
    out = json.loads(_show(recipe, *options, "--json"))
    assert isinstance(out, dict)
    return out


def test_the_differences_are_marked_without_colour_too(recipe: Path) -> None:
    out = _show(recipe, "--beside")
    assert "[-get_dose-]" in out and "{+find_strength" in out
    assert "step 0 (added)" in out and "tools moved behind a Tool_RAG call: " in out
    assert "What is the dose?" in out


def test_the_rows_as_json(recipe: Path) -> None:
    value = _json(recipe, "--beside")
    rows = {row["where"]: row for row in value["rows"]}
    new = value["renamed"]["get_dose"]
    call = next(row for row in value["rows"] if row["where"].endswith("call") and row["before"].startswith("get_dose "))
    assert call["after"].startswith(f"{new} ") and call["changed"]
    assert rows["user"]["before"] == rows["user"]["after"] and not rows["user"]["changed"]
    added = next(row for row in value["rows"] if row["where"] == "step 0 (added) call")
    assert added["before"] == "" and added["after"].startswith("Tool_RAG ")
    assert value["counts"]["virtual_calls"] >= 1


def test_an_epoch_is_shown_as_it_is_trained_on(recipe: Path) -> None:
    shown = {json.dumps(_json(recipe, "--epoch", str(epoch))["steps"]) for epoch in (0, 1, 2)}
    assert len(shown) == 3
    assert all("find_strength" in text for text in shown)
    for epoch in ("0", "1"):
        names = {_json(recipe, "--beside", "--epoch", epoch)["renamed"]["get_dose"]}
        tools = {name for step in _json(recipe, "--epoch", epoch)["steps"] for name in step["tools"]}
        assert names <= tools


def test_words_are_marked_one_by_one() -> None:
    before, after = marked("call get_dose now", "call find_it now")
    assert (before.plain, after.plain) == ("call [-get_dose-] now", "call {+find_it+} now")
    before, after = marked("", "new")
    assert (before.plain, after.plain) == ("", "{+new+}")


def test_beside_and_html_do_not_go_together(recipe: Path, tmp_path: Path) -> None:
    arguments = ["data", "show", str(tmp_path / "t.jsonl"), "--beside", "--html", str(tmp_path / "x.html")]
    assert CliRunner().invoke(app, arguments).exit_code != 0
