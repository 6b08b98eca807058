from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.openai_records import assistant, record, user, write_lines
from txagent_train.cli.data import app
from txagent_train.core.errors import DataError, UserError
from txagent_train.data.frozen import FrozenSet

RUNNER = CliRunner()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    messages = [[user(f"Question {n}?"), assistant("Yes.")] for n in range(3)]
    return write_lines(tmp_path / "bench.jsonl", [record(f"t{n}", item) for n, item in enumerate(messages)])


def test_freeze_tells_what_it_froze(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench.frozen.json"
    result = RUNNER.invoke(app, ["freeze", str(source), "--out", str(out), "--json"], catch_exceptions=False)
    report = json.loads(result.stdout)
    assert report["created_from"]["traces"] == 3 and report["out"] == str(out)
    assert report["keys"]["question"] == report["keys"]["id"] == len(FrozenSet.read(out).keys["id"]) == 3
    shown = RUNNER.invoke(app, ["freeze", str(source), "--out", str(out), "--overwrite"], catch_exceptions=False).stdout
    assert "froze 3 records" in shown and "3 of kind question" in shown


def test_mistakes_are_user_errors(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.json"
    assert isinstance(RUNNER.invoke(app, ["freeze", str(source), "--out", str(source)]).exception, UserError)
    as_questions = RUNNER.invoke(app, ["freeze", str(source), "--out", str(out), "--format", "questions"])
    assert isinstance(as_questions.exception, DataError) and "no question" in str(as_questions.exception)
    assert not out.exists()


@pytest.mark.parametrize("format", ["auto", "question"])
def test_a_file_of_questions_is_told_its_format(tmp_path: Path, format: str) -> None:
    path = write_lines(tmp_path / "q.jsonl", [{"id": "q", "question": "Is it safe?"}])
    result = RUNNER.invoke(app, ["freeze", str(path), "--out", str(tmp_path / "f.json"), "--format", format])
    assert isinstance(result.exception, UserError) and "questions" in result.exception.fix


def test_a_split_shows_shares_and_freezes(source: Path, tmp_path: Path) -> None:
    arguments = ["split", str(source), "--format", "openai", "--out", str(tmp_path / "s"), "--fraction", "0.34"]
    shown = RUNNER.invoke(app, arguments, catch_exceptions=False).stdout
    assert "1 (33.3%)" in shown and "2 (66.7%)" in shown
    assert (tmp_path / "s" / "heldout.frozen.json").exists()
