from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.chat_server import Answer, chat_server
from tests.support.tool_specs import tool
from txagent_train.cli.app import app
from txagent_train.core.errors import UserError
from txagent_train.data.rewrites import RewriteSet
from txagent_train.data.toolbox import Toolbox


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    specs = (
        tool("get_storage_by_drug_name", "Retrieve storage information based on the drug name.", drug_name="The drug."),
        tool("get_dose_by_drug_name", "Retrieve dose information based on the drug name.", drug_name="The drug."),
    )
    Toolbox(specs).write(path)
    return path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["tools", *words])


def test_rewrites_are_written_and_told(tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "rewrites.jsonl"
    result = run("rewrite", str(tools), "--n", "6", "--out", str(out), "--hold-out-versions", "2", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["versions"] == 12 and report["versions_for_training"] == 8
    rewrites = RewriteSet.read(out)
    rewrites.check_fits(Toolbox.read(tools))
    assert {len(versions) for versions in rewrites.by_tool.values()} == {6}
    again = run("rewrite", str(tools), "--out", str(out))
    assert isinstance(again.exception, UserError) and "exists already" in str(again.exception)
    text = run("rewrite", str(tools), "--n", "6", "--out", str(out), "--overwrite").stdout
    assert "12 versions of 2 tools" in text and "jaccard" in text


def test_neighbours_are_written(tools: Path, tmp_path: Path) -> None:
    result = run("neighbours", str(tools), "--out", str(tmp_path / "n.json"), "--json")
    assert json.loads(result.stdout)["tools"] == 2
    nearest = json.loads((tmp_path / "n.json").read_text())["neighbours"]
    assert nearest["get_dose_by_drug_name"] == ["get_storage_by_drug_name"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--writer", "teacher"], "needs --base-url and --model"),
        (["--writer", "teacher", "--base-url", "http://x/v1", "--model", "m", "--price-in", "1"], "no cost"),
        (["--writer", "teacher", "--base-url", "http://x/v1", "--model", "m"], "nothing was sent: this takes 8"),
        (["--n", "2", "--hold-out-versions", "2"], "cannot be held out"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tools: Path, tmp_path: Path, words: list[str], problem: str) -> None:
    result = run("rewrite", str(tools), "--out", str(tmp_path / "r.jsonl"), *words)
    assert isinstance(result.exception, UserError) and problem in str(result.exception)
    assert not (tmp_path / "r.jsonl").exists()


def test_failures_are_reported_and_with_strict_nothing_is_written(tools: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with chat_server(lambda body, number: Answer("I cannot.")) as server:
        words = ["rewrite", str(tools), "--n", "2", "--out", str(out), "--writer", "teacher", "--yes", "--model", "m"]
        words += ["--base-url", server.url, "--price-in", "1", "--price-out", "2"]
        strict = run(*words, "--strict")
        assert isinstance(strict.exception, UserError) and "4 versions passed no attempt" in str(strict.exception)
        assert not out.exists() and (tmp_path / "r.jsonl.replies.jsonl").exists()
        sent = len(server.bodies)
        result = run(*words, "--json")
        assert len(server.bodies) == sent  # the answers were kept
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["failed"] == {"unreadable_reply": 4} and report["versions"] == 0
    assert report["estimate"]["recorded"] == 2 and report["spent"]["requests"] == 0
    assert RewriteSet.read(out).by_tool == {}
