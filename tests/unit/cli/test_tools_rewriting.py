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
from txagent_train.core.records import ToolSpec
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
        (["--writer", "teacher", "--base-url", "x/v1", "--model", "m"], "no address"),
        (["--n", "2", "--hold-out-versions", "2"], "cannot be held out"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tools: Path, tmp_path: Path, words: list[str], problem: str) -> None:
    result = run("rewrite", str(tools), "--out", str(tmp_path / "r.jsonl"), *words)
    assert isinstance(result.exception, UserError) and problem in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["tools.json"]


@pytest.mark.parametrize("command", ["rewrite", "neighbours", "export", "import"])
@pytest.mark.parametrize("spelling", ["tools.json", "../{}/tools.json", "link.json"])
def test_what_is_read_is_not_written_over(tools: Path, tmp_path: Path, command: str, spelling: str) -> None:
    (tmp_path / "link.json").symlink_to(tools)
    before = tools.read_bytes()
    result = run(command, str(tools), "--out", str(tmp_path / spelling.format(tmp_path.name)), "--overwrite")
    assert isinstance(result.exception, UserError) and "nothing is written over it" in str(result.exception)
    assert tools.read_bytes() == before


def test_an_import_does_not_write_over_a_file_of_its_folder(tools: Path, tmp_path: Path) -> None:
    result = run("import", str(tmp_path), "--out", str(tools), "--overwrite")
    assert isinstance(result.exception, UserError) and "nothing is written over it" in str(result.exception)


def test_the_answers_have_a_file_of_their_own(tools: Path, tmp_path: Path) -> None:
    words = ["rewrite", str(tools), "--writer", "teacher", "--base-url", "http://x/v1", "--model", "m"]
    for replies in (tmp_path / "r.jsonl", tools):
        result = run(*words, "--out", str(tmp_path / "r.jsonl"), "--replies", str(replies))
        assert isinstance(result.exception, UserError) and "file" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["tools.json"]


def test_a_share_of_a_small_toolbox_is_held_out_and_told(tools: Path, tmp_path: Path) -> None:
    result = run("rewrite", str(tools), "--n", "2", "--out", str(tmp_path / "r.jsonl"), "--hold-out-tools", "0.1")
    [tool_name] = RewriteSet.read(tmp_path / "r.jsonl").held_out_tools
    assert f"tools held out: 1 ({tool_name})" in result.stdout


def test_a_toolbox_without_a_tool_to_rewrite_is_refused(tmp_path: Path) -> None:
    Toolbox((ToolSpec("Finish", "Ends it.", {}),)).write(tmp_path / "t.json")
    result = run("rewrite", str(tmp_path / "t.json"), "--out", str(tmp_path / "r.jsonl"))
    assert isinstance(result.exception, UserError) and "no tool to rewrite" in str(result.exception)
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize("name", ["n.json.gz", "n.json.zst"])
def test_neighbours_are_not_packed(tools: Path, tmp_path: Path, name: str) -> None:
    result = run("neighbours", str(tools), "--out", str(tmp_path / name))
    assert isinstance(result.exception, UserError) and not (tmp_path / name).exists()


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
    assert isinstance(result.exception, UserError) and "no version passed" in str(result.exception)
    assert result.exception.exit_code == 2 and "unreadable_reply 16 times" in str(result.exception)
    assert report["failed"] == {"unreadable_reply": 4} and report["versions"] == 0
    assert report["estimate"]["recorded"] == 2 and report["spent"]["requests"] == 0
    assert not out.exists()
