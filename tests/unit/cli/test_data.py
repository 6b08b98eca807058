from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.support.openai_records import assistant, call, record, tool, user, write_lines
from txagent_train.cli.data import app
from txagent_train.core.errors import DataError, UserError

RUNNER = CliRunner()
CUT_SHORT = [user(), assistant(None, call()), tool(), assistant(None, call()), tool()]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    questions = [[user(f"Question {n}?"), assistant("Yes.")] for n in range(10)]
    records = [record(f"t{n}", messages) for n, messages in enumerate(questions)]
    return write_lines(tmp_path / "in.jsonl", [*records, record("cut", CUT_SHORT), record("empty", [])])


def _json(*arguments: object) -> dict[str, object]:
    result = RUNNER.invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    out = json.loads(result.stdout)
    assert isinstance(out, dict)
    return out


def test_import_stats_split(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    report = _json("import", source, "--out", out)
    assert (report["read"], report["accepted"], report["out"]) == (12, 10, str(out))
    assert report["dropped"] == {"incomplete": 1, "empty_trace": 1}
    assert _json("stats", out)["traces"] == 10
    assert (report["format"], report["guessed"], report["kinds"]) == ("openai", True, {"trace": 10, "chat": 0})
    assert report["dropped_file"] == f"{out}.dropped.jsonl"
    assert _json("stats", source)["incomplete"] == 1
    assert _json("split", out, "--out", tmp_path / "split", "--fraction", "0.2")["heldout"] == 2
    assert _json("import", source, "--out", out, "--incomplete", "steps", "--overwrite")["accepted"] == 11


def test_tables_show_the_same_numbers(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    shown = RUNNER.invoke(app, ["import", str(source), "--out", str(out)], catch_exceptions=False).stdout
    assert "format: openai (guessed)" in shown and "read 12, accepted 10 (10 trace)" in shown
    assert "incomplete" in shown and "--incomplete" in shown and "out.jsonl.dropped.jsonl" in shown
    named = RUNNER.invoke(app, ["stats", str(source), "--format", "openai"], catch_exceptions=False).stdout
    assert "format: openai\n" in named
    assert "complete" in RUNNER.invoke(app, ["stats", str(out)], catch_exceptions=False).stdout
    folder = tmp_path / "split"
    assert "held out" in RUNNER.invoke(app, ["split", str(out), "--out", str(folder)], catch_exceptions=False).stdout


def test_names_from_files_are_not_read_as_markup(tmp_path: Path) -> None:
    messages = [user(), assistant(None, call("[bold]x[/nonsense]", "{}")), tool(), assistant("a")]
    source = write_lines(tmp_path / "in.jsonl", [record("t", messages)])
    result = RUNNER.invoke(app, ["stats", str(source), "--format", "openai"], catch_exceptions=False)
    assert "[bold]x[/nonsense]" in result.stdout


def test_nothing_accepted_is_said_aloud(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [record("t", [])])
    with pytest.raises(
        DataError, match=r"none of the 1 records is accepted, read as openai \(guessed; .*\)\n  1 empty_trace"
    ):
        RUNNER.invoke(app, ["import", str(source), "--out", str(tmp_path / "o.jsonl")], catch_exceptions=False)


def test_what_is_supervised_and_what_a_table_hides_are_said(tmp_path: Path) -> None:
    call_only = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    row = {"id": "a", "messages": [user(), call_only], "functions": [{"name": "f"}, {"name": "Finish"}]}
    source = write_lines(tmp_path / "in.jsonl", [row])
    out = tmp_path / "out.jsonl"
    shown = RUNNER.invoke(app, ["import", str(source), "--out", str(out)], catch_exceptions=False).stdout
    assert "format: toolbench (guessed)" in shown and "trained on: the last step of each record" in shown
    pq.write_table(pa.Table.from_pylist([{"messages": [user(), assistant("Hi.")]}]), tmp_path / "in.parquet")
    shown = RUNNER.invoke(app, ["import", str(tmp_path / "in.parquet"), "--out", str(tmp_path / "b.jsonl")]).stdout
    assert "read 1, accepted 1 (1 chat)" in shown and "Note: messages: a key with null" in shown


@pytest.mark.parametrize(("option", "message"), [("--invalid-calls", "names no_such"), ("--incomplete", "ends with a")])
def test_policies_of_the_import_may_be_errors(tmp_path: Path, option: str, message: str) -> None:
    bad = [user(), assistant(None, call("no_such", "{}")), tool(), assistant("a")]
    records = [record("a"), record("b", bad if option == "--invalid-calls" else CUT_SHORT)]
    source = write_lines(tmp_path / "in.jsonl", records)
    arguments = ["import", str(source), "--out", str(tmp_path / "o.jsonl"), option, "error"]
    with pytest.raises(DataError, match=rf"in\.jsonl:2, trace b, step \d: .*{message}"):
        RUNNER.invoke(app, arguments, catch_exceptions=False)


def test_faults_of_the_file_and_the_options_are_user_errors(source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text()[:-30])
    assert isinstance(
        RUNNER.invoke(app, ["import", str(source), "--out", str(tmp_path / "o.jsonl")]).exception, DataError
    )
    assert isinstance(RUNNER.invoke(app, ["stats", str(source), "--format", "nonsense"]).exception, UserError)
    assert RUNNER.invoke(app, ["import", str(source), "--out", "x", "--invalid-calls", "maybe"]).exit_code == 2


@pytest.mark.parametrize("command", ["import", "split"])
def test_an_output_below_a_file_is_a_user_error(source: Path, tmp_path: Path, command: str) -> None:
    for out in (source / "x.jsonl", source / "deep" / "x.jsonl", tmp_path / ("x" * 300)):
        result = RUNNER.invoke(app, [command, str(source), "--format", "openai", "--out", str(out)])
        assert type(result.exception) is UserError or isinstance(result.exception, DataError), out
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_folder_as_data_is_said_to_be_one(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["stats", str(tmp_path)])
    assert isinstance(result.exception, DataError) and "this is a folder" in str(result.exception)


def test_heavy_libraries_are_not_imported() -> None:
    heavy = "{'torch', 'transformers', 'datasets', 'pyarrow'}"
    code = f"import sys, txagent_train.cli.data; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
